// Tokenizer::from_gguf: byte-level BPE ("gpt2") and SentencePiece BPE ("llama") vocabularies as
// llama.cpp writes them into GGUF metadata.
#include <utility>

#include "absl/strings/str_format.h"
#include "engine/text/bpe_tokenizer.h"
#include "engine/text/byte_level.h"
#include "engine/text/derived_merges.h"
#include "engine/text/unicode.h"

namespace millrace {
namespace {

// Values of tokenizer.ggml.token_type.
enum GgufTokenType : int32_t {
  kTypeNormal = 1,
  kTypeUnknown = 2,
  kTypeControl = 3,
  kTypeUserDefined = 4,
  kTypeUnused = 5,
  kTypeByte = 6,
};

Status check_sizes(const GgufVocabulary& source) {
  const size_t size = source.tokens.size();
  if (size == 0) return absl::InvalidArgumentError("tokenizer.ggml.tokens is empty");
  if (!source.types.empty() && source.types.size() != size) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "tokenizer.ggml.token_type has %d values for %d tokens", source.types.size(), size));
  }
  if (!source.scores.empty() && source.scores.size() != size) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "tokenizer.ggml.scores has %d values for %d tokens", source.scores.size(), size));
  }
  return absl::OkStatus();
}

TokenKind kind_of(int32_t type) {
  switch (type) {
    case kTypeUnknown: return TokenKind::unknown;
    case kTypeControl: return TokenKind::control;
    case kTypeUserDefined: return TokenKind::added;
    case kTypeUnused: return TokenKind::hole;
    case kTypeByte: return TokenKind::byte;
    default: return TokenKind::normal;
  }
}

// Ids of type "unused" only pad the vocabulary to the embedding's rows: they have no token.
Status fill_vocabulary(const GgufVocabulary& source, bool byte_level, BpeParts& parts) {
  MR_RETURN_IF_ERROR(
      Vocabulary::check_id(static_cast<int64_t>(source.tokens.size()) - 1, source.tokens.size()));
  for (size_t i = 0; i < source.tokens.size(); ++i) {
    const auto id = static_cast<Token>(i);
    const std::string& text = source.tokens[i];
    const TokenKind kind = kind_of(source.types.empty() ? kTypeNormal : source.types[i]);
    if (kind == TokenKind::hole) continue;
    std::string bytes = text;
    const auto byte = byte_of_hex_token(text);
    if (kind == TokenKind::byte && byte) {
      bytes = static_cast<char>(*byte);
      parts.byte_tokens[*byte] = id;
    } else if (!byte_level) {
      bytes = marker_to_spaces(text);
    } else if (kind == TokenKind::normal) {
      bytes = byte_level_bytes(text);
    }
    parts.vocabulary.set(id, text, bytes, kind);
    if (kind == TokenKind::unknown) parts.vocabulary.set_special(id, true);
    if (kind == TokenKind::control || kind == TokenKind::added) {
      parts.added.add({.content = byte_level ? text : bytes, .id = id});
    }
  }
  parts.vocabulary.finish();
  return absl::OkStatus();
}

Status fill_merges(const GgufVocabulary& source, BpeParts& parts) {
  parts.merger.reserve(source.merges.size());
  std::string merged;
  for (size_t rank = 0; rank < source.merges.size(); ++rank) {
    const std::string_view line = source.merges[rank];
    const size_t space = line.find(' ', 1);
    if (space == std::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tokenizer.ggml.merges: merge %d is not two tokens with a space between them", rank));
    }
    const std::string_view left = line.substr(0, space);
    const std::string_view right = line.substr(space + 1);
    merged = left;
    merged += right;
    const Token left_id = parts.vocabulary.find(left);
    const Token right_id = parts.vocabulary.find(right);
    const Token merged_id = parts.vocabulary.find(merged);
    if (left_id < 0 || right_id < 0 || merged_id < 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tokenizer.ggml.merges: merge %d (\"%s\") names a token that is not in "
                          "tokenizer.ggml.tokens",
                          rank, source.merges[rank]));
    }
    if (parts.vocabulary.kind(merged_id) == TokenKind::control) continue;
    parts.merger.add(left_id, right_id, static_cast<uint32_t>(rank), merged_id);
  }
  return absl::OkStatus();
}

void fill_special(const GgufVocabulary& source, bool add_bos, BpeParts& parts) {
  const auto token = [&](int64_t id) {
    return id >= 0 && id < parts.vocabulary.size() ? static_cast<Token>(id) : -1;
  };
  parts.bos = token(source.bos);
  parts.eos = token(source.eos);
  if (source.add_bos.value_or(add_bos) && parts.bos >= 0) parts.prefix.push_back(parts.bos);
  if (source.add_eos.value_or(false) && parts.eos >= 0) parts.suffix.push_back(parts.eos);
}

StatusOr<std::unique_ptr<Tokenizer>> load_byte_level(const GgufVocabulary& source) {
  MR_ASSIGN_OR_RETURN(NamedSplit split, split_for_gguf(source.pre));
  BpeParts parts;
  for (SplitStage& stage : split.stages) {
    MR_RETURN_IF_ERROR(parts.pre_tokenizer.add(std::move(stage)));
  }
  MR_RETURN_IF_ERROR(fill_vocabulary(source, true, parts));
  MR_RETURN_IF_ERROR(fill_merges(source, parts));
  parts.ignore_merges = split.ignore_merges;
  if (parts.ignore_merges) parts.vocabulary.index_bytes();
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    append_utf8(byte_to_char(static_cast<uint8_t>(byte)), text);
    parts.byte_tokens[byte] = parts.vocabulary.find(text);
  }
  if (source.add_space_prefix.value_or(false)) {
    parts.rewriter.add({.kind = NormalizeOp::Kind::prepend_once, .to = " "});
    parts.rewriter_prefix = PrefixRule::text_start;
  }
  fill_special(source, split.add_bos, parts);
  return std::unique_ptr<Tokenizer>(std::make_unique<BpeTokenizer>(std::move(parts)));
}

StatusOr<std::unique_ptr<Tokenizer>> load_sentencepiece(const GgufVocabulary& source) {
  if (source.scores.empty()) {
    return absl::InvalidArgumentError(
        "tokenizer.ggml.scores is missing, which a \"llama\" vocabulary needs");
  }
  BpeParts parts;
  parts.byte_level = false;
  MR_RETURN_IF_ERROR(fill_vocabulary(source, false, parts));
  MR_RETURN_IF_ERROR(
      derive_score_merges(std::span(source.scores).first(parts.vocabulary.size()), parts));
  parts.cut_at_marker = can_cut_at_marker(parts.vocabulary);
  parts.unknown =
      source.unk >= 0 && source.unk < parts.vocabulary.size() ? static_cast<Token>(source.unk) : -1;
  parts.fuse_unknown = parts.fuse_across_words = true;
  if (source.remove_extra_whitespaces) {
    parts.normalizer.add({.kind = NormalizeOp::Kind::sentencepiece,
                          .remove_extra_whitespaces = true,
                          .replace_ill_formed = false});
  }
  if (source.add_space_prefix.value_or(true)) {
    parts.normalizer.add({.kind = NormalizeOp::Kind::prepend, .to = " "});
    parts.first_token = FirstTokenRule::one_space;
  }
  parts.normalizer.add(
      {.kind = NormalizeOp::Kind::replace, .from = " ", .to = std::string(kSpaceMarker)});
  fill_special(source, true, parts);
  return std::unique_ptr<Tokenizer>(std::make_unique<BpeTokenizer>(std::move(parts)));
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::from_gguf(GgufVocabulary vocabulary) {
  MR_RETURN_IF_ERROR(check_sizes(vocabulary));
  if (vocabulary.model == "gpt2") return load_byte_level(vocabulary);
  if (vocabulary.model == "llama") return load_sentencepiece(vocabulary);
  return absl::UnimplementedError(
      absl::StrFormat("tokenizer.ggml.model \"%s\" is not supported; supported are gpt2 and llama",
                      vocabulary.model));
}

}  // namespace millrace
