// BpeTokenizer: the one implementation of Tokenizer. Loaders (tokenizer.json, GGUF, SentencePiece,
// tiktoken, tekken) translate their files into a BpeParts, which says everything that encoding and
// decoding depend on. Immutable; any thread.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/text/added_tokens.h"
#include "engine/text/bpe_merger.h"
#include "engine/text/normalizer.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary.h"
#include "engine/text/word_cache.h"

namespace millrace {

// What a token's bytes lose where it is the first of a text.
enum class FirstTokenRule : uint8_t { nothing, one_space, all_spaces };
// Which pieces of text between added tokens get the prefix of a rewriting step.
enum class PrefixRule : uint8_t {
  every_piece,
  text_start,         // only the piece at offset 0
  start_and_control,  // at offset 0 and behind control tokens
};

struct BpeParts {
  Vocabulary vocabulary;
  BpeMerger merger;

  bool byte_level = true;      // symbols are bytes, else characters
  bool ignore_merges = false;  // a word that is a vocabulary entry is that entry
  bool cut_at_marker = false;  // no entry continues over a U+2581, so words may be cut before one
  // byte_level: the symbol of each byte. Else: the tokens <0xHH>, for characters without a symbol.
  std::array<Token, 256> byte_tokens;
  // Symbols of single characters; those that are no token of their own have ids beyond the
  // vocabulary and exist only to be merged.
  std::unordered_map<char32_t, Token> char_symbols;
  Token unknown = -1;
  bool fuse_unknown = false;       // consecutive unknown characters give one token ...
  bool fuse_across_words = false;  // ... even across words

  bool replace_ill_formed = false;  // U+FFFD for ill-formed UTF-8 before anything else
  Normalizer normalizer;
  PrefixRule normalizer_prefix = PrefixRule::every_piece;
  Normalizer rewriter;  // what the pre-tokenizer rewrites before it splits
  PrefixRule rewriter_prefix = PrefixRule::every_piece;
  PreTokenizer pre_tokenizer;

  AddedTokens added;               // found in the text as it is
  AddedTokens normalized_added;    // found after normalization ...
  AddedTokens unnormalized_added;  // ... and the same by their own text, for pieces with literals

  std::vector<Token> prefix, suffix;  // what add_special_tokens adds
  FirstTokenRule first_token = FirstTokenRule::nothing;
  Token bos = -1, eos = -1;

  BpeParts() { byte_tokens.fill(-1); }
};

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeParts parts);
  ~BpeTokenizer() override;

  std::vector<Token> encode(std::string_view text, const EncodeOptions& options) const override;
  std::string_view token_bytes(Token token) const override;
  std::string_view first_token_bytes(Token token) const override;
  bool is_special(Token token) const override;
  std::optional<Token> find(std::string_view token_text) const override;
  std::string_view token_text(Token token) const override;
  int64_t size() const override { return parts_.vocabulary.size(); }
  std::vector<Token> holes() const override;
  std::optional<Token> bos() const override;
  std::optional<Token> eos() const override;
  std::vector<Token> end_tokens() const override { return end_tokens_; }

 private:
  class Encoding;
  struct Scratch;
  class ScratchLease;

  const BpeParts parts_;
  std::vector<Token> end_tokens_;
  // Buffers and word caches that no encoding uses right now.
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;  // guarded by mutex_
};

// The tokens of `vocabulary` that end a generation: `eos`, and those known by name.
std::vector<Token> find_end_tokens(const Vocabulary& vocabulary, Token eos);

// True if no entry has U+2581 behind another character, so that no merge crosses the place in front
// of a marker that follows another character.
bool can_cut_at_marker(const Vocabulary& vocabulary);

// Spaces for all markers.
std::string marker_to_spaces(std::string_view text);

inline constexpr std::string_view kSpaceMarker = "\xE2\x96\x81";  // U+2581

}  // namespace millrace
