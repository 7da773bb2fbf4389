// Tokenizer::from_tokenizer_json: tokenizer.json is the authority. tokenizer_config.json only names
// the BOS and EOS tokens, and asks for a BOS where tokenizer.json has no template of its own.
#include <utility>

#include "absl/strings/str_format.h"
#include "engine/text/byte_level.h"
#include "engine/text/json_access.h"
#include "engine/text/tokenizer_json_file.h"
#include "engine/text/unicode.h"

namespace millrace {
namespace {

using nlohmann::json;

struct AddedEntry {
  AddedToken token;
  bool special = false;
  bool normalized = false;
};

StatusOr<std::vector<AddedEntry>> read_added_tokens(const json& root) {
  std::vector<AddedEntry> entries;
  const json* const list = json_member(root, "added_tokens");
  if (list == nullptr) return entries;
  if (!list->is_array()) {
    return absl::InvalidArgumentError("tokenizer.json: added_tokens must be a list");
  }
  for (const json& item : *list) {
    AddedEntry entry;
    entry.token.content = json_string(item, "content");
    const int64_t id = json_int(item, "id", -1);
    if (entry.token.content.empty() || id < 0 || id > INT32_MAX) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tokenizer.json: added token %d needs a content and an id", entries.size()));
    }
    entry.token.id = static_cast<Token>(id);
    entry.token.lstrip = json_bool(item, "lstrip", false);
    entry.token.rstrip = json_bool(item, "rstrip", false);
    entry.token.single_word = json_bool(item, "single_word", false);
    entry.special = json_bool(item, "special", false);
    entry.normalized = json_bool(item, "normalized", !entry.special);
    entries.push_back(std::move(entry));
  }
  return entries;
}

Status check_model(const json& model) {
  const std::string type = json_string(model, "type", "BPE");
  if (type != "BPE") {
    return absl::UnimplementedError(absl::StrFormat(
        "tokenizer.json: the model type \"%s\" is not supported; supported is BPE", type));
  }
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!json_string(model, name).empty()) {
      return absl::UnimplementedError(
          absl::StrFormat("tokenizer.json: the BPE model's %s is not supported", name));
    }
  }
  const json* const dropout = json_member(model, "dropout");
  if (dropout != nullptr && dropout->is_number() && dropout->get<double>() != 0) {
    return absl::UnimplementedError("tokenizer.json: the BPE model's dropout is not supported");
  }
  return absl::OkStatus();
}

Status fill_vocabulary(const TokenizerJsonFile& file, const std::vector<AddedEntry>& added,
                       const DecoderRule& decoder, Vocabulary& vocabulary) {
  const size_t num_entries = file.vocab.size() + added.size();
  for (const auto& [text, id] : file.vocab) {
    MR_RETURN_IF_ERROR(Vocabulary::check_id(id, num_entries));
    vocabulary.set(static_cast<Token>(id), text, decoder.bytes_of(text), TokenKind::normal);
  }
  for (const AddedEntry& entry : added) {
    MR_RETURN_IF_ERROR(Vocabulary::check_id(entry.token.id, num_entries));
    vocabulary.set(entry.token.id, entry.token.content, entry.token.content,
                   entry.special ? TokenKind::control : TokenKind::added);
  }
  vocabulary.finish();
  return absl::OkStatus();
}

Status fill_merges(const TokenizerJsonFile& file, BpeParts& parts) {
  parts.merger.reserve(file.merges.size());
  std::string merged;
  for (size_t rank = 0; rank < file.merges.size(); ++rank) {
    const auto& [left, right] = file.merges[rank];
    merged = left + right;
    const Token left_id = parts.vocabulary.find(left);
    const Token right_id = parts.vocabulary.find(right);
    const Token merged_id = parts.vocabulary.find(merged);
    if (left_id < 0 || right_id < 0 || merged_id < 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tokenizer.json: merge %d (\"%s %s\") names a token that is not in the vocabulary", rank,
          left, right));
    }
    if (parts.vocabulary.kind(merged_id) == TokenKind::control) continue;
    parts.merger.add(left_id, right_id, static_cast<uint32_t>(rank), merged_id);
  }
  return absl::OkStatus();
}

void fill_symbols(const TokenizerJsonFile& file, bool byte_fallback, BpeParts& parts) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    if (parts.byte_level) {
      append_utf8(byte_to_char(static_cast<uint8_t>(byte)), text);
    } else if (byte_fallback) {
      text = absl::StrFormat("<0x%02X>", byte);
    }
    if (!text.empty()) parts.byte_tokens[byte] = parts.vocabulary.find(text);
  }
  for (const auto& [text, id] : file.vocab) {
    if (parts.byte_level || text.empty()) continue;
    const Utf8Char c = decode_utf8(text.data(), text.data() + text.size());
    if (c.state == Utf8State::complete && c.length == text.size()) {
      parts.char_symbols.emplace(c.code, static_cast<Token>(id));
    }
  }
}

void fill_added(const std::vector<AddedEntry>& added, BpeParts& parts) {
  SplitRegex::MatchState state;
  for (const AddedEntry& entry : added) {
    if (!entry.normalized) {
      parts.added.add(entry.token);
      continue;
    }
    AddedToken normalized = entry.token;
    if (!parts.normalizer.empty()) {
      normalized.content = parts.normalizer.apply(normalized.content, true, state);
    }
    parts.normalized_added.add(std::move(normalized));
    parts.unnormalized_added.add(entry.token);
  }
}

// "bos_token": "<s>" or {"content": "<s>"}.
Token configured_token(const json& config, const char* name, const Vocabulary& vocabulary) {
  const json* const member = json_member(config, name);
  if (member == nullptr) return -1;
  const std::string text =
      member->is_string() ? member->get<std::string>() : json_string(*member, "content");
  return text.empty() ? -1 : vocabulary.find(text);
}

Status apply_config(std::string_view text, bool has_template, BpeParts& parts) {
  json config = json::object();
  if (!text.empty()) config = json::parse(text.begin(), text.end(), nullptr, false);
  if (!config.is_object()) {
    return absl::InvalidArgumentError("tokenizer_config.json is not a valid JSON object");
  }
  parts.bos = configured_token(config, "bos_token", parts.vocabulary);
  parts.eos = configured_token(config, "eos_token", parts.vocabulary);
  if (has_template) return absl::OkStatus();
  if (json_bool(config, "add_bos_token", false) && parts.bos >= 0) {
    parts.prefix.push_back(parts.bos);
  }
  if (json_bool(config, "add_eos_token", false) && parts.eos >= 0) {
    parts.suffix.push_back(parts.eos);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::from_tokenizer_json(
    std::string_view text, std::string_view tokenizer_config) {
  MR_ASSIGN_OR_RETURN(const TokenizerJsonFile file, read_tokenizer_json(text));
  const json* const model = json_member(file.root, "model");
  if (model == nullptr || !model->is_object()) {
    return absl::InvalidArgumentError("tokenizer.json has no model");
  }
  MR_RETURN_IF_ERROR(check_model(*model));
  MR_ASSIGN_OR_RETURN(const std::vector<AddedEntry> added, read_added_tokens(file.root));
  MR_ASSIGN_OR_RETURN(const DecoderRule decoder, parse_decoder(file.root));

  BpeParts parts;
  MR_RETURN_IF_ERROR(parse_normalizer(file.root, parts.normalizer));
  MR_RETURN_IF_ERROR(parse_pre_tokenizer(file.root, parts));
  if (parts.byte_level != decoder.byte_level) {
    return absl::UnimplementedError(
        "tokenizer.json: ByteLevel must be both the pre-tokenizer and the decoder, or neither");
  }
  MR_RETURN_IF_ERROR(fill_vocabulary(file, added, decoder, parts.vocabulary));
  MR_RETURN_IF_ERROR(fill_merges(file, parts));
  parts.ignore_merges = json_bool(*model, "ignore_merges", false);
  if (parts.ignore_merges && parts.byte_level) parts.vocabulary.index_bytes();
  fill_symbols(file, json_bool(*model, "byte_fallback", false), parts);
  fill_added(added, parts);

  const std::string unknown = json_string(*model, "unk_token");
  if (!unknown.empty()) parts.unknown = parts.vocabulary.find(unknown);
  parts.fuse_unknown = json_bool(*model, "fuse_unk", false);
  parts.fuse_across_words = parts.fuse_unknown && parts.pre_tokenizer.empty();
  parts.first_token = decoder.first_token;
  parts.replace_ill_formed = !parts.byte_level || !parts.normalizer.empty();
  parts.cut_at_marker = !parts.byte_level && can_cut_at_marker(parts.vocabulary);
  MR_ASSIGN_OR_RETURN(const bool has_template, parse_post_processor(file.root, parts));
  MR_RETURN_IF_ERROR(apply_config(tokenizer_config, has_template, parts));
  return std::unique_ptr<Tokenizer>(std::make_unique<BpeTokenizer>(std::move(parts)));
}

}  // namespace millrace
