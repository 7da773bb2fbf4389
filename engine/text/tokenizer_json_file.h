// TokenizerJsonFile: a parsed tokenizer.json. The vocabulary and the merges, which are nearly all
// of the file, are taken out while parsing and never become JSON values. A plain value.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/text/bpe_tokenizer.h"

namespace millrace {

struct TokenizerJsonFile {
  nlohmann::json root;  // model.vocab and model.merges are empty in it
  std::vector<std::pair<std::string, int64_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;
};

// INVALID_ARGUMENT if `text` is not JSON or has a malformed vocabulary or merge.
StatusOr<TokenizerJsonFile> read_tokenizer_json(std::string_view text);

// The parts of a tokenizer that the components of a tokenizer.json describe. Each returns
// INVALID_ARGUMENT or UNIMPLEMENTED with one sentence that names the component.
Status parse_normalizer(const nlohmann::json& root, Normalizer& normalizer);
// Fills pre_tokenizer, rewriter, rewriter_prefix and byte_level.
Status parse_pre_tokenizer(const nlohmann::json& root, BpeParts& parts);
// True if a template was found, which then is in parts.prefix and parts.suffix.
StatusOr<bool> parse_post_processor(const nlohmann::json& root, BpeParts& parts);

// How a vocabulary entry becomes text.
struct DecoderRule {
  bool byte_level = false;
  bool byte_fallback = false;
  std::vector<std::pair<std::string, std::string>> replacements;
  FirstTokenRule first_token = FirstTokenRule::nothing;

  std::string bytes_of(std::string_view token_text) const;
};
StatusOr<DecoderRule> parse_decoder(const nlohmann::json& root);

}  // namespace millrace
