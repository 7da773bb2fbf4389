// Writing JSON text by hand: the few pieces that the hot path and the error path need. Pure
// functions; any thread.
#pragma once

#include <string>
#include <string_view>

namespace millrace::api {

// Appends `text` as a JSON string with its quotes. Total: each maximal ill-formed part of the UTF-8
// becomes U+FFFD.
void append_json_string(std::string& out, std::string_view text);
// The same without quotes, to continue a string that was begun.
void append_json_escaped(std::string& out, std::string_view text);

// Shortest form that reads back as the same float. JSON has no infinities: what is not finite, or
// below the floor that stands for "impossible", becomes -9999.0.
void append_json_score(std::string& out, float value);

// Length of the well-formed UTF-8 character at the start of `text` (not empty), or 0 where it is
// ill-formed; then `bad_length` is the length of the maximal ill-formed part.
size_t utf8_character(std::string_view text, size_t& bad_length);

}  // namespace millrace::api
