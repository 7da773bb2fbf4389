// UTF-8 and the character classes that split rules and normalizers speak of. Pure functions over
// immutable tables; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

// One bit for each group of general categories that a known split rule can tell apart.
enum CharFlag : uint8_t {
  kUpperLetter = 1,  // Lu, Lt
  kLowerLetter = 2,  // Ll
  kOtherLetter = 4,  // Lm, Lo
  kMark = 8,         // Mn, Mc, Me
  kNumber = 16,      // Nd, Nl, No
  kPunctuation = 32,
  kSymbol = 64,
  kWhiteSpace = 128,  // the property White_Space
};
inline constexpr uint8_t kLetter = kUpperLetter | kLowerLetter | kOtherLetter;
inline constexpr char32_t kReplacementCharacter = 0xFFFD;

enum class Utf8State : uint8_t { complete, ill_formed, truncated };

struct Utf8Char {
  char32_t code = kReplacementCharacter;
  uint8_t length = 1;  // bytes; of the maximal ill-formed part if there is no character
  Utf8State state = Utf8State::ill_formed;
};

// The character at `p` < `end`. truncated: [p, end) is a proper prefix of a character.
Utf8Char decode_utf8(const char* p, const char* end);
void append_utf8(char32_t code, std::string& out);

// Every maximal ill-formed part becomes U+FFFD (the rule of the WHATWG encoding standard).
std::string to_well_formed(std::string_view text);
bool is_well_formed(std::string_view text);
bool is_ascii(std::string_view text);

uint8_t char_flags(char32_t code);
// Letters, marks, digits and connectors: \w of a Unicode pattern.
bool is_word_char(char32_t code);

extern const std::array<uint8_t, 128> kAsciiFlags;

struct FlaggedChar {
  uint8_t flags;
  uint8_t length;
};

// Class and length of the character at `p` < `end`; ill-formed parts count as U+FFFD, a symbol.
inline FlaggedChar flagged_char(const char* p, const char* end) {
  const auto byte = static_cast<uint8_t>(*p);
  if (byte < 128) return {kAsciiFlags[byte], 1};
  const Utf8Char c = decode_utf8(p, end);
  return {char_flags(c.code), c.length};
}

}  // namespace millrace
