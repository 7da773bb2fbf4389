#include "engine/text/byte_level.h"

#include <array>

#include "engine/text/unicode.h"

namespace millrace {
namespace {

constexpr char32_t kFirstSubstitute = 0x100;

constexpr bool is_printable(uint8_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> chars{};
  std::array<uint8_t, 256> substitutes{};  // the byte of U+0100 + i
  char32_t num_substitutes = 0;
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (int byte = 0; byte < 256; ++byte) {
    if (is_printable(static_cast<uint8_t>(byte))) {
      alphabet.chars[byte] = static_cast<char32_t>(byte);
    } else {
      alphabet.substitutes[alphabet.num_substitutes] = static_cast<uint8_t>(byte);
      alphabet.chars[byte] = kFirstSubstitute + alphabet.num_substitutes++;
    }
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

char32_t byte_to_char(uint8_t byte) { return kAlphabet.chars[byte]; }

std::optional<uint8_t> char_to_byte(char32_t code) {
  if (code < 256) {
    const auto byte = static_cast<uint8_t>(code);
    if (is_printable(byte)) return byte;
    return std::nullopt;
  }
  const char32_t index = code - kFirstSubstitute;
  if (index < kAlphabet.num_substitutes) return kAlphabet.substitutes[index];
  return std::nullopt;
}

std::string byte_level_bytes(std::string_view text) {
  std::string bytes;
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const Utf8Char c = decode_utf8(p, end);
    const auto byte =
        c.state == Utf8State::complete ? char_to_byte(c.code) : std::optional<uint8_t>();
    if (!byte) return std::string(text);
    bytes += static_cast<char>(*byte);
    p += c.length;
  }
  return bytes;
}

std::optional<uint8_t> byte_of_hex_token(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return std::nullopt;
  const int high = hex_value(text[3]);
  const int low = hex_value(text[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<uint8_t>(high * 16 + low);
}

}  // namespace millrace
