#include "engine/text/jinja_print.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "engine/text/jinja_ops.h"
#include "engine/text/jinja_unicode.h"

namespace millrace::jinja {
namespace {

std::string hex_escape(const char* format, int32_t c) {
  char buffer[16];
  std::snprintf(buffer, sizeof(buffer), format, static_cast<unsigned>(c));
  return buffer;
}

// Writes `text` through `escape(c, out)`, which returns false for a character that stays as it is.
// What an escape writes carries the mark of its character.
template <class Escape>
void append_through(TextBuilder& out, const StringObject& text, Escape&& escape) {
  out.heap().scan(text.bytes.size());
  size_t plain = 0;  // start of the run not written yet
  size_t mark = 0;
  std::string escaped;
  for (size_t i = 0; i < text.bytes.size();) {
    const CodePoint c = decode_at(text.bytes, i);
    escaped.clear();
    if (escape(c.value, escaped)) {
      out.append(text, plain, i);
      while (mark < text.marks.size() && text.marks[mark].end <= i) ++mark;
      out.append(escaped,
                 text.all_marked || (mark < text.marks.size() && text.marks[mark].begin <= i));
      plain = i + c.size;
    }
    i += c.size;
  }
  out.append(text, plain, text.bytes.size());
}

void append_string_repr(TextBuilder& out, const StringObject& text) {
  const bool has_single = text.bytes.find('\'') != std::string_view::npos;
  const bool has_double = text.bytes.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out.append(std::string_view(&quote, 1));
  append_through(out, text, [quote](int32_t c, std::string& escaped) {
    if (c == quote || c == '\\') {
      escaped = {'\\', static_cast<char>(c)};
    } else if (c == '\n') {
      escaped = "\\n";
    } else if (c == '\r') {
      escaped = "\\r";
    } else if (c == '\t') {
      escaped = "\\t";
    } else if (is_printable(c)) {
      return false;
    } else {
      escaped = hex_escape(c <= 0xFF ? "\\x%02x" : c <= 0xFFFF ? "\\u%04x" : "\\U%08x", c);
    }
    return true;
  });
  out.append(std::string_view(&quote, 1));
}

void append_json_string(TextBuilder& out, const StringObject& text, bool ensure_ascii) {
  out.append("\"");
  append_through(out, text, [ensure_ascii](int32_t c, std::string& escaped) {
    switch (c) {
      case '"': escaped = "\\\""; return true;
      case '\\': escaped = "\\\\"; return true;
      case '\n': escaped = "\\n"; return true;
      case '\r': escaped = "\\r"; return true;
      case '\t': escaped = "\\t"; return true;
      case '\f': escaped = "\\f"; return true;
      case '\b': escaped = "\\b"; return true;
      default: break;
    }
    if (c >= 0x20 && (c < 0x7F || !ensure_ascii)) return false;
    if (c <= 0xFFFF) {
      escaped = hex_escape("\\u%04x", c);
    } else {
      escaped = hex_escape("\\u%04x", 0xD800 + ((c - 0x10000) >> 10)) +
                hex_escape("\\u%04x", 0xDC00 + ((c - 0x10000) & 0x3FF));
    }
    return true;
  });
  out.append("\"");
}

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return float_repr(value);
}

void append_json_key(TextBuilder& out, const Value& key, bool ensure_ascii) {
  switch (key.kind()) {
    case Kind::kString: return append_json_string(out, key.as_string(), ensure_ascii);
    case Kind::kNone: return out.append("\"null\"");
    case Kind::kBool: return out.append(key.as_bool() ? "\"true\"" : "\"false\"");
    case Kind::kInt: return out.append("\"" + std::to_string(key.as_int()) + "\"");
    case Kind::kFloat: return out.append("\"" + json_float(key.as_double()) + "\"");
    default:
      fail("JSON keys must be str, int, float, bool or None, not " + std::string(type_name(key)));
  }
}

void append_json_break(TextBuilder& out, const JsonStyle& style, int level) {
  if (!style.indent) return;
  out.append("\n");
  for (int i = 0; i < level; ++i) out.append(*style.indent);
}

void append_json_dict(TextBuilder& out, Heap& heap, const DictObject& dict, const JsonStyle& style,
                      int level) {
  std::vector<const std::pair<Value, Value>*> entries;
  for (const auto& entry : dict.entries) entries.push_back(&entry);
  if (style.sort_keys) {
    std::stable_sort(entries.begin(), entries.end(),
                     [](const auto* a, const auto* b) { return less(a->first, b->first); });
  }
  out.append("{");
  bool first = true;
  for (const auto* entry : entries) {
    if (!first) out.append(style.item_separator);
    first = false;
    append_json_break(out, style, level + 1);
    append_json_key(out, entry->first, style.ensure_ascii);
    out.append(style.key_separator);
    append_json(out, heap, entry->second, style, level + 1);
  }
  if (!first) append_json_break(out, style, level);
  out.append("}");
}

void append_items(TextBuilder& out, Heap& heap, const ListObject& list, std::string_view open,
                  std::string_view close) {
  out.append(open);
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.append(", ");
    append_repr(out, heap, list.items[i]);
  }
  if (list.flavor == Flavor::kTuple && list.items.size() == 1) out.append(",");
  out.append(close);
}

void append_list_repr(TextBuilder& out, Heap& heap, const ListObject& list) {
  switch (list.flavor) {
    case Flavor::kList: return append_items(out, heap, list, "[", "]");
    case Flavor::kTuple: return append_items(out, heap, list, "(", ")");
    case Flavor::kKeys: return append_items(out, heap, list, "dict_keys([", "])");
    case Flavor::kValues: return append_items(out, heap, list, "dict_values([", "])");
    case Flavor::kItems: return append_items(out, heap, list, "dict_items([", "])");
    case Flavor::kGenerator: return out.append("<generator object>");
    case Flavor::kRange: break;
  }
  out.append("range(" + std::to_string(list.start) + ", " + std::to_string(list.stop));
  if (list.step != 1) out.append(", " + std::to_string(list.step));
  out.append(")");
}

void append_dict_repr(TextBuilder& out, Heap& heap, const DictObject& dict) {
  out.append("{");
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) out.append(", ");
    first = false;
    append_repr(out, heap, key);
    out.append(": ");
    append_repr(out, heap, value);
  }
  out.append("}");
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  // Shortest digits that read back as the same double, then Python's choice of notation.
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view scientific(buffer, static_cast<size_t>(end.ptr - buffer));
  const char* digits = scientific.data() + scientific.find('e') + 1;
  if (*digits == '+') ++digits;
  int exponent = 0;
  std::from_chars(digits, end.ptr, exponent);
  if (exponent < -4 || exponent >= 16) return std::string(scientific);
  const auto fixed_end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  std::string fixed(buffer, static_cast<size_t>(fixed_end.ptr - buffer));
  if (fixed.find('.') == std::string::npos) fixed += ".0";
  return fixed;
}

void append_repr(TextBuilder& out, Heap& heap, const Value& value) {
  if (value.is_string()) return append_string_repr(out, value.as_string());
  if (value.is_undefined()) return out.append("Undefined");
  append_str(out, heap, value);
}

void append_str(TextBuilder& out, Heap& heap, const Value& value) {
  Nested nested(heap);
  switch (value.kind()) {
    case Kind::kAbsent:
    case Kind::kUndefined: return;
    case Kind::kNone: return out.append("None");
    case Kind::kBool: return out.append(value.as_bool() ? "True" : "False");
    case Kind::kInt: return out.append(std::to_string(value.as_int()));
    case Kind::kFloat: return out.append(float_repr(value.as_double()));
    case Kind::kString: return out.append(value.as_string());
    case Kind::kList: return append_list_repr(out, heap, value.as_list());
    case Kind::kDict: return append_dict_repr(out, heap, value.as_dict());
    case Kind::kNamespace:
      out.append("<Namespace ");
      append_dict_repr(out, heap, value.as_dict());
      return out.append(">");
    case Kind::kCallable:
      return out.append("<function " + std::string(value.as_callable().name) + ">");
    case Kind::kLoop: return out.append("<LoopContext>");
  }
}

void append_json(TextBuilder& out, Heap& heap, const Value& value, const JsonStyle& style,
                 int level) {
  Nested nested(heap);
  heap.step();
  switch (value.kind()) {
    case Kind::kNone: return out.append("null");
    case Kind::kBool: return out.append(value.as_bool() ? "true" : "false");
    case Kind::kInt: return out.append(std::to_string(value.as_int()));
    case Kind::kFloat: return out.append(json_float(value.as_double()));
    case Kind::kString: return append_json_string(out, value.as_string(), style.ensure_ascii);
    case Kind::kDict: return append_json_dict(out, heap, value.as_dict(), style, level);
    case Kind::kList: {
      const ListObject& list = value.as_list();
      if (list.flavor != Flavor::kList && list.flavor != Flavor::kTuple) break;
      out.append("[");
      for (size_t i = 0; i < list.items.size(); ++i) {
        if (i > 0) out.append(style.item_separator);
        append_json_break(out, style, level + 1);
        append_json(out, heap, list.items[i], style, level + 1);
      }
      if (!list.items.empty()) append_json_break(out, style, level);
      return out.append("]");
    }
    default: break;
  }
  fail("object of type " + std::string(type_name(value)) + " is not JSON serializable");
}

void append_escaped(TextBuilder& out, const StringObject& text) {
  append_through(out, text, [](int32_t c, std::string& escaped) {
    switch (c) {
      case '&': escaped = "&amp;"; return true;
      case '<': escaped = "&lt;"; return true;
      case '>': escaped = "&gt;"; return true;
      case '\'': escaped = "&#39;"; return true;
      case '"': escaped = "&#34;"; return true;
      default: return false;
    }
  });
}

Value to_str(Heap& heap, const Value& value) {
  if (value.is_string()) return value;
  TextBuilder out(heap);
  append_str(out, heap, value);
  return out.finish();
}

}  // namespace millrace::jinja
