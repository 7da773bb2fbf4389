// Tokenizer::from_sentencepiece: BPE models of the SentencePiece format (tokenizer.model).
#include <utility>

#include "absl/strings/str_format.h"
#include "engine/text/bpe_tokenizer.h"
#include "engine/text/byte_level.h"
#include "engine/text/derived_merges.h"
#include "engine/text/json_access.h"
#include "sentencepiece_model.pb.h"

namespace millrace {
namespace {

using sentencepiece::Model;
using sentencepiece::NormalizerSpec;
using sentencepiece::Piece;
using sentencepiece::TrainerSpec;

Status check_supported(const Model& model) {
  if (model.pieces_size() == 0) {
    return absl::InvalidArgumentError("tokenizer.model has no pieces");
  }
  if (model.trainer_spec().model_type() != TrainerSpec::BPE) {
    return absl::UnimplementedError(
        absl::StrFormat("tokenizer.model: the model type %s is not supported; supported is BPE",
                        TrainerSpec::ModelType_Name(model.trainer_spec().model_type())));
  }
  if (model.trainer_spec().treat_whitespace_as_suffix() ||
      !model.normalizer_spec().escape_whitespaces()) {
    return absl::UnimplementedError(
        "tokenizer.model: treat_whitespace_as_suffix and unescaped white space are not supported");
  }
  return absl::OkStatus();
}

TokenKind kind_of(Piece::Type type) {
  switch (type) {
    case Piece::UNKNOWN: return TokenKind::unknown;
    case Piece::CONTROL: return TokenKind::control;
    case Piece::USER_DEFINED: return TokenKind::added;
    case Piece::UNUSED: return TokenKind::hole;
    case Piece::BYTE: return TokenKind::byte;
    default: return TokenKind::normal;
  }
}

std::vector<float> fill_vocabulary(const Model& model, BpeParts& parts) {
  std::vector<float> scores;
  for (Token id = 0; id < model.pieces_size(); ++id) {
    const Piece& piece = model.pieces(id);
    const TokenKind kind = kind_of(piece.type());
    scores.push_back(piece.score());
    if (kind == TokenKind::hole) continue;
    std::string bytes = marker_to_spaces(piece.piece());
    const auto byte = byte_of_hex_token(piece.piece());
    if (kind == TokenKind::byte && byte) {
      bytes = static_cast<char>(*byte);
      if (model.trainer_spec().byte_fallback()) parts.byte_tokens[*byte] = id;
    } else if (kind == TokenKind::unknown) {
      bytes = model.trainer_spec().unk_surface();
    }
    parts.vocabulary.set(id, piece.piece(), bytes, kind);
    if (kind == TokenKind::control || kind == TokenKind::added) {
      parts.added.add({.content = bytes, .id = id});
    }
  }
  parts.vocabulary.finish();
  scores.resize(parts.vocabulary.size());
  return scores;
}

Status fill_normalizer(const NormalizerSpec& spec, BpeParts& parts) {
  NormalizeOp op = {.kind = NormalizeOp::Kind::sentencepiece,
                    .remove_extra_whitespaces = spec.remove_extra_whitespaces()};
  if (!spec.precompiled_charsmap().empty()) {
    MR_ASSIGN_OR_RETURN(op.charsmap, Charsmap::parse(spec.precompiled_charsmap()));
  }
  parts.normalizer.add(std::move(op));
  if (spec.add_dummy_prefix()) {
    parts.normalizer.add({.kind = NormalizeOp::Kind::prepend, .to = " "});
    parts.first_token = FirstTokenRule::one_space;
  }
  parts.normalizer.add(
      {.kind = NormalizeOp::Kind::replace, .from = " ", .to = std::string(kSpaceMarker)});
  parts.normalizer_prefix = PrefixRule::start_and_control;
  return absl::OkStatus();
}

Status fill_special(const TrainerSpec& spec, std::string_view config_text, BpeParts& parts) {
  nlohmann::json config = nlohmann::json::object();
  if (!config_text.empty()) {
    config = nlohmann::json::parse(config_text.begin(), config_text.end(), nullptr, false);
  }
  if (!config.is_object()) {
    return absl::InvalidArgumentError("tokenizer_config.json is not a valid JSON object");
  }
  parts.unknown = parts.vocabulary.contains(spec.unk_id()) ? spec.unk_id() : -1;
  parts.bos = parts.vocabulary.contains(spec.bos_id()) ? spec.bos_id() : -1;
  parts.eos = parts.vocabulary.contains(spec.eos_id()) ? spec.eos_id() : -1;
  if (json_bool(config, "add_bos_token", true) && parts.bos >= 0) {
    parts.prefix.push_back(parts.bos);
  }
  if (json_bool(config, "add_eos_token", false) && parts.eos >= 0) {
    parts.suffix.push_back(parts.eos);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::from_sentencepiece(
    std::string_view model_proto, std::string_view tokenizer_config) {
  Model model;
  if (model_proto.size() > INT32_MAX ||
      !model.ParseFromArray(model_proto.data(), static_cast<int>(model_proto.size()))) {
    return absl::InvalidArgumentError("tokenizer.model is not a SentencePiece model");
  }
  MR_RETURN_IF_ERROR(check_supported(model));
  MR_RETURN_IF_ERROR(Vocabulary::check_id(model.pieces_size() - 1, model.pieces_size()));
  BpeParts parts;
  parts.byte_level = false;
  const std::vector<float> scores = fill_vocabulary(model, parts);
  MR_RETURN_IF_ERROR(derive_score_merges(scores, parts));
  parts.cut_at_marker = can_cut_at_marker(parts.vocabulary);
  parts.fuse_unknown = parts.fuse_across_words = true;
  MR_RETURN_IF_ERROR(fill_normalizer(model.normalizer_spec(), parts));
  MR_RETURN_IF_ERROR(fill_special(model.trainer_spec(), tokenizer_config, parts));
  return std::unique_ptr<Tokenizer>(std::make_unique<BpeTokenizer>(std::move(parts)));
}

}  // namespace millrace
