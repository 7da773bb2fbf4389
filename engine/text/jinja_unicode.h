// UTF-8 as Python's str sees it: code points, character classes, case. Pure functions. Ill-formed
// bytes count as one character each and are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::jinja {

struct CodePoint {
  int32_t value;  // the byte itself when ill-formed
  uint32_t size;  // bytes, at least 1
  bool well_formed;
};

CodePoint decode_at(std::string_view text, size_t offset);
void append_code_point(std::string& out, int32_t value);

int64_t count_code_points(std::string_view text);
// Byte offset of the character with index `index`; text.size() when there are fewer.
size_t offset_of(std::string_view text, int64_t index);

bool is_space(int32_t c);       // str.isspace
bool is_line_break(int32_t c);  // what str.splitlines splits at
bool is_printable(int32_t c);   // str.isprintable
bool is_alpha(int32_t c);
bool is_decimal(int32_t c);  // str.isdecimal
bool is_numeric(int32_t c);
bool is_upper(int32_t c);
bool is_lower(int32_t c);
bool is_cased(int32_t c);
inline bool is_word(int32_t c) { return is_alpha(c) || is_numeric(c) || c == '_'; }

// Full case mappings, which may yield more than one character.
void append_upper(std::string& out, int32_t c);
void append_lower(std::string& out, int32_t c);
void append_title(std::string& out, int32_t c);

// First position of `needle` at or after `from`, npos if none; linear time.
size_t find_text(std::string_view text, std::string_view needle, size_t from);

}  // namespace millrace::jinja
