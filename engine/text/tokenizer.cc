#include "engine/text/tokenizer.h"

#include "engine/text/unicode.h"

namespace millrace {

std::string Tokenizer::decode(std::span<const Token> tokens, bool skip_special_tokens) const {
  std::string bytes;
  bool at_start = true;
  for (const Token token : tokens) {
    if (skip_special_tokens && is_special(token)) continue;
    bytes += at_start ? first_token_bytes(token) : token_bytes(token);
    if (!token_text(token).empty()) at_start = false;
  }
  return is_well_formed(bytes) ? bytes : to_well_formed(bytes);
}

}  // namespace millrace
