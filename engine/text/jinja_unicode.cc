#include "engine/text/jinja_unicode.h"

#include <utf8proc.h>

#include <cstring>

namespace millrace::jinja {
namespace {

// The unconditional one-to-many upper-case mappings of Unicode's SpecialCasing.txt that have no
// simple mapping: sharp s, the Latin and Armenian ligatures, and letters with a built-in mark.
struct SpecialUpper {
  int32_t c;
  const char* upper;
  const char* title;
};
constexpr SpecialUpper kSpecialUpper[] = {
    {0x00DF, "SS", "Ss"},
    {0x0149, "\xCA\xBCN", "\xCA\xBCN"},
    {0x01F0, "J\xCC\x8C", "J\xCC\x8C"},
    {0x0390, "\xCE\x99\xCC\x88\xCC\x81", "\xCE\x99\xCC\x88\xCC\x81"},
    {0x03B0, "\xCE\xA5\xCC\x88\xCC\x81", "\xCE\xA5\xCC\x88\xCC\x81"},
    {0x0587, "\xD4\xB5\xD5\x92", "\xD4\xB5\xD6\x82"},
    {0xFB00, "FF", "Ff"},
    {0xFB01, "FI", "Fi"},
    {0xFB02, "FL", "Fl"},
    {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"},
    {0xFB05, "ST", "St"},
    {0xFB06, "ST", "St"},
};

const SpecialUpper* special_upper(int32_t c) {
  if (c < 0xDF) return nullptr;
  for (const SpecialUpper& entry : kSpecialUpper) {
    if (entry.c == c) return &entry;
  }
  return nullptr;
}

}  // namespace

CodePoint decode_at(std::string_view text, size_t offset) {
  const auto first = static_cast<unsigned char>(text[offset]);
  if (first < 0x80) return {first, 1, true};
  utf8proc_int32_t value = 0;
  const utf8proc_ssize_t size =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + offset,
                       static_cast<utf8proc_ssize_t>(text.size() - offset), &value);
  if (size <= 0) return {first, 1, false};
  return {value, static_cast<uint32_t>(size), true};
}

void append_code_point(std::string& out, int32_t value) {
  if (value >= 0 && value < 0x80) {
    out.push_back(static_cast<char>(value));
    return;
  }
  utf8proc_uint8_t buffer[4];
  const utf8proc_ssize_t size = utf8proc_encode_char(value, buffer);
  out.append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(size));
}

int64_t count_code_points(std::string_view text) {
  int64_t count = 0;
  for (size_t i = 0; i < text.size(); ++count) i += decode_at(text, i).size;
  return count;
}

size_t offset_of(std::string_view text, int64_t index) {
  size_t offset = 0;
  for (; index > 0 && offset < text.size(); --index) offset += decode_at(text, offset).size;
  return offset;
}

bool is_space(int32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_break(int32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool is_printable(int32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_alpha(int32_t c) {
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return true;
    default: return false;
  }
}

bool is_decimal(int32_t c) { return utf8proc_category(c) == UTF8PROC_CATEGORY_ND; }

bool is_numeric(int32_t c) {
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return true;
    default: return false;
  }
}

bool is_upper(int32_t c) { return utf8proc_category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(int32_t c) { return utf8proc_category(c) == UTF8PROC_CATEGORY_LL; }
bool is_cased(int32_t c) {
  return is_upper(c) || is_lower(c) || utf8proc_category(c) == UTF8PROC_CATEGORY_LT;
}

void append_upper(std::string& out, int32_t c) {
  if (const SpecialUpper* special = special_upper(c)) {
    out += special->upper;
  } else {
    append_code_point(out, utf8proc_toupper(c));
  }
}

void append_lower(std::string& out, int32_t c) {
  if (c == 0x0130) {
    out += "i\xCC\x87";
  } else {
    append_code_point(out, utf8proc_tolower(c));
  }
}

void append_title(std::string& out, int32_t c) {
  if (const SpecialUpper* special = special_upper(c)) {
    out += special->title;
  } else {
    append_code_point(out, utf8proc_totitle(c));
  }
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace millrace::jinja
