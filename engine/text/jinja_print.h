// How values become text: Python's str() and repr(), and json.dumps as the tojson filter calls it.
// Marks of user text are kept inside what is written.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/text/jinja_value.h"

namespace millrace::jinja {

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level; unset: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

void append_str(TextBuilder& out, Heap& heap, const Value& value);
void append_repr(TextBuilder& out, Heap& heap, const Value& value);
void append_json(TextBuilder& out, Heap& heap, const Value& value, const JsonStyle& style,
                 int level = 0);
void append_escaped(TextBuilder& out, const StringObject& text);  // HTML

// str(value): the value itself when it is a string.
Value to_str(Heap& heap, const Value& value);
std::string float_repr(double value);

}  // namespace millrace::jinja
