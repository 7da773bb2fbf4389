// Tokenizer: text <-> token ids, for byte-level BPE and SentencePiece BPE vocabularies. Immutable
// after loading; every method may be called by any number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/base/token.h"

namespace millrace {

// Bytes [begin, end) of a text that are data: no added or control token is recognised inside them.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
};

struct EncodeOptions {
  bool add_special_tokens = true;           // what the post-processor adds: BOS, EOS
  bool parse_special = true;                // recognise added tokens in the text outside `literal`
  std::span<const ByteRange> literal = {};  // ascending, disjoint
};

// A vocabulary read from GGUF metadata, whose arrays the loader has already bounded and typed.
struct GgufVocabulary {
  std::string model;  // tokenizer.ggml.model: "gpt2", "llama"
  std::string pre;    // tokenizer.ggml.pre
  std::vector<std::string> tokens;
  std::vector<float> scores;   // may be empty
  std::vector<int32_t> types;  // llama.cpp token types: 1 normal, 2 unknown, 3 control,
                               // 4 user-defined, 5 unused, 6 byte
  std::vector<std::string> merges;
  int64_t bos = -1, eos = -1, unk = -1, eot = -1;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
  bool remove_extra_whitespaces = false;
};

class Tokenizer {
 public:
  // Errors name the file and what is unsupported (model type, normalizer, unknown pre name, ...).
  // `tokenizer_config` is the JSON text of tokenizer_config.json, or empty.
  static StatusOr<std::unique_ptr<Tokenizer>> from_tokenizer_json(
      std::string_view json, std::string_view tokenizer_config = {});
  static StatusOr<std::unique_ptr<Tokenizer>> from_sentencepiece(
      std::string_view model_proto, std::string_view tokenizer_config = {});
  static StatusOr<std::unique_ptr<Tokenizer>> from_gguf(GgufVocabulary vocabulary);
  // Ranks in tiktoken's format ("base64 rank" lines) with a named split pattern (cl100k_base,
  // o200k_base, gpt2, qwen2) and special tokens; Mistral's tekken.json.
  static StatusOr<std::unique_ptr<Tokenizer>> from_tiktoken(
      std::string_view ranks, std::string_view pattern_name,
      std::span<const std::pair<std::string, Token>> special_tokens);
  static StatusOr<std::unique_ptr<Tokenizer>> from_tekken_json(std::string_view json);

  virtual ~Tokenizer() = default;

  // Total: any bytes give ids (ill-formed UTF-8 is encoded through the vocabulary's bytes or
  // replaced as the reference does). Time is linear in the text, whatever its shape.
  virtual std::vector<Token> encode(std::string_view text,
                                    const EncodeOptions& options = {}) const = 0;

  // Raw bytes that a token contributes in the middle of a text; empty for an unknown id.
  virtual std::string_view token_bytes(Token token) const = 0;
  // As token_bytes, but what it contributes as the very first token of a text (SentencePiece drops
  // one leading space there).
  virtual std::string_view first_token_bytes(Token token) const = 0;

  virtual bool is_special(Token token) const = 0;  // control tokens: hidden by skip_special_tokens
  virtual std::optional<Token> find(
      std::string_view token_text) const = 0;                  // exact vocabulary entry
  virtual std::string_view token_text(Token token) const = 0;  // exact vocabulary entry

  virtual int64_t size() const = 0;              // highest id + 1
  virtual std::vector<Token> holes() const = 0;  // ids below size() that have no token, ascending
  virtual std::optional<Token> bos() const = 0;
  virtual std::optional<Token> eos() const = 0;
  // Ids that end a generation: eos, and end-of-turn tokens known by name (<|im_end|>, <|eot_id|>,
  // ...)
  virtual std::vector<Token> end_tokens() const = 0;

  // Whole-text decoding by concatenation; ill-formed bytes become U+FFFD, one for each maximal
  // ill-formed part.
  std::string decode(std::span<const Token> tokens, bool skip_special_tokens) const;
};

}  // namespace millrace
