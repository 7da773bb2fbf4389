#include "server/api/json_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>

namespace millrace::api {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr float kScoreFloor = -9999.0f;

// Bytes that can be copied as they are: ASCII but controls, the quote and the backslash.
constexpr std::array<bool, 256> make_plain() {
  std::array<bool, 256> plain{};
  for (int c = 0x20; c < 0x80; ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}
constexpr std::array<bool, 256> kPlain = make_plain();

void append_escape(std::string& out, unsigned char c) {
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\b': out += "\\b"; return;
    case '\f': out += "\\f"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: {
      constexpr char kHex[] = "0123456789abcdef";
      out += "\\u00";
      out += kHex[c >> 4];
      out += kHex[c & 15];
    }
  }
}

}  // namespace

// Table 3-7 of the Unicode standard: the legal range of the second byte depends on the first.
size_t utf8_character(std::string_view text, size_t& bad_length) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return 1;
  size_t length = 0;
  uint8_t low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  }
  if (length == 0) {
    bad_length = 1;
    return 0;
  }
  for (size_t i = 1; i < length; ++i) {
    if (i >= text.size() || at(i) < low || at(i) > high) {
      bad_length = i;
      return 0;
    }
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

void append_json_escaped(std::string& out, std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    size_t run = i;
    while (run < text.size() && kPlain[static_cast<uint8_t>(text[run])]) ++run;
    out.append(text, i, run - i);
    i = run;
    if (i == text.size()) return;
    const auto c = static_cast<uint8_t>(text[i]);
    if (c < 0x80) {
      append_escape(out, c);
      ++i;
      continue;
    }
    size_t bad_length = 0;
    const size_t length = utf8_character(text.substr(i), bad_length);
    if (length > 0) {
      out.append(text, i, length);
      i += length;
    } else {
      out += kReplacement;
      i += bad_length;
    }
  }
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  append_json_escaped(out, text);
  out += '"';
}

void append_json_score(std::string& out, float value) {
  if (!(value > kScoreFloor) || !std::isfinite(value)) value = kScoreFloor;
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  const std::string_view digits(buffer, end - buffer);
  out += digits;
  // A score stays a floating-point number for readers that tell the two apart.
  if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
}

}  // namespace millrace::api
