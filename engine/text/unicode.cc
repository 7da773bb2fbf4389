#include "engine/text/unicode.h"

#include <utf8proc.h>

#include <map>
#include <vector>

namespace millrace {
namespace {

constexpr bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

uint8_t category_flags(char32_t code) {
  if (is_white_space(code)) return kWhiteSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return kUpperLetter;
    case UTF8PROC_CATEGORY_LL: return kLowerLetter;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return kOtherLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return kNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return kPunctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: return kSymbol;
    default: return 0;
  }
}

// Two levels: blocks of 256 code points, equal blocks stored once. Beyond plane 3 only plane 14
// (tags and variation selectors) has characters that carry a flag.
class FlagTable {
 public:
  FlagTable() {
    std::map<std::array<uint8_t, 256>, uint16_t> seen;
    for (size_t block = 0; block < index_.size(); ++block) {
      std::array<uint8_t, 256> flags{};
      if (block < 0x400 || (block >= 0xE00 && block < 0xE10)) {
        for (size_t i = 0; i < 256; ++i) {
          flags[i] = category_flags(static_cast<char32_t>(block * 256 + i));
        }
      }
      const auto [entry, added] = seen.emplace(flags, static_cast<uint16_t>(blocks_.size()));
      if (added) blocks_.push_back(flags);
      index_[block] = entry->second;
    }
  }
  uint8_t operator[](char32_t code) const { return blocks_[index_[code >> 8]][code & 255]; }

 private:
  std::array<uint16_t, 0x1100> index_{};
  std::vector<std::array<uint8_t, 256>> blocks_;
};

constexpr std::array<uint8_t, 128> ascii_flags() {
  std::array<uint8_t, 128> flags{};
  for (char32_t c = 0; c < 128; ++c) {
    uint8_t& flag = flags[c];
    if (is_white_space(c)) {
      flag = kWhiteSpace;
    } else if (c >= 'A' && c <= 'Z') {
      flag = kUpperLetter;
    } else if (c >= 'a' && c <= 'z') {
      flag = kLowerLetter;
    } else if (c >= '0' && c <= '9') {
      flag = kNumber;
    } else if (c == '$' || c == '+' || c == '<' || c == '=' || c == '>' || c == '^' || c == '`' ||
               c == '|' || c == '~') {
      flag = kSymbol;
    } else if (c > 0x20 && c < 0x7F) {
      flag = kPunctuation;
    }
  }
  return flags;
}

// How many bytes a lead byte announces, and what the second byte may be (Unicode, table 3-7).
struct Lead {
  uint8_t length = 0;
  uint8_t low = 0x80, high = 0xBF;
};

constexpr Lead lead_of(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

}  // namespace

const std::array<uint8_t, 128> kAsciiFlags = ascii_flags();

Utf8Char decode_utf8(const char* p, const char* end) {
  const auto first = static_cast<uint8_t>(*p);
  if (first < 0x80) return {first, 1, Utf8State::complete};
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {};
  char32_t code = first & (0x7Fu >> lead.length);
  for (uint8_t i = 1; i < lead.length; ++i) {
    if (p + i == end) return {kReplacementCharacter, i, Utf8State::truncated};
    const auto byte = static_cast<uint8_t>(p[i]);
    const bool fits = i == 1 ? byte >= lead.low && byte <= lead.high : (byte & 0xC0) == 0x80;
    if (!fits) return {kReplacementCharacter, i, Utf8State::ill_formed};
    code = code << 6 | (byte & 0x3Fu);
  }
  return {code, lead.length, Utf8State::complete};
}

void append_utf8(char32_t code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

std::string to_well_formed(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const Utf8Char c = decode_utf8(p, end);
    if (c.state == Utf8State::complete) {
      out.append(p, c.length);
    } else {
      append_utf8(kReplacementCharacter, out);
    }
    p += c.length;
  }
  return out;
}

bool is_well_formed(std::string_view text) {
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const Utf8Char c = decode_utf8(p, end);
    if (c.state != Utf8State::complete) return false;
    p += c.length;
  }
  return true;
}

bool is_ascii(std::string_view text) {
  uint8_t bits = 0;
  for (const char c : text) bits |= static_cast<uint8_t>(c);
  return bits < 128;
}

uint8_t char_flags(char32_t code) {
  static const FlagTable table;
  return code < 0x110000 ? table[code] : 0;
}

bool is_word_char(char32_t code) {
  if (char_flags(code) & (kLetter | kMark)) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_PC;
}

}  // namespace millrace
