// Detokenizer: one text's incremental decoding. Takes tokens, returns well-formed UTF-8 that never
// changes afterwards: the concatenation of all returned pieces plus finish() equals
// Tokenizer::decode of all tokens. Total and O(1) per token; at most 3 undecided bytes are held.
// One owner, one thread.
#pragma once

#include <string>
#include <string_view>

#include "engine/text/tokenizer.h"

namespace millrace {

struct DetokenizerOptions {
  bool skip_special_tokens = true;
  // Accepted for the sake of clients: an added token carries no space of its own here, so both
  // values give the same text.
  bool spaces_between_special_tokens = true;
  bool at_text_start = true;  // false when the tokens continue a prompt
};

class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options)
      : tokenizer_(&tokenizer), options_(options), at_start_(options.at_text_start) {}

  std::string push(Token token);
  // The held bytes, as U+FFFD where they are ill-formed.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  DetokenizerOptions options_;
  bool at_start_;
  std::string held_;  // a proper prefix of a UTF-8 character
};

// Moves the decidable part of `bytes` to the result: complete characters as they are, U+FFFD for
// each maximal ill-formed part; keeps an unfinished last character in `bytes` (unless `flush`).
std::string take_utf8(std::string& bytes, bool flush);

}  // namespace millrace
