#include "engine/text/detokenizer.h"

#include "engine/text/unicode.h"

namespace millrace {

std::string take_utf8(std::string& bytes, bool flush) {
  std::string out;
  out.reserve(bytes.size());
  const char* p = bytes.data();
  const char* const end = p + bytes.size();
  while (p < end) {
    const Utf8Char c = decode_utf8(p, end);
    if (c.state == Utf8State::truncated && !flush) break;
    if (c.state == Utf8State::complete) {
      out.append(p, c.length);
    } else {
      append_utf8(kReplacementCharacter, out);
    }
    p += c.length;
  }
  bytes.erase(0, static_cast<size_t>(p - bytes.data()));
  return out;
}

std::string Detokenizer::push(Token token) {
  if (options_.skip_special_tokens && tokenizer_->is_special(token)) return {};
  const std::string_view bytes =
      at_start_ ? tokenizer_->first_token_bytes(token) : tokenizer_->token_bytes(token);
  // An id without a token has no place in the text, so the next one may still be its first.
  if (at_start_ && !tokenizer_->token_text(token).empty()) at_start_ = false;
  held_ += bytes;
  return take_utf8(held_, false);
}

std::string Detokenizer::finish() { return take_utf8(held_, true); }

}  // namespace millrace
