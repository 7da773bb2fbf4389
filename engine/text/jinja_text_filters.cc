// Filters that work on one text or number.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "engine/text/jinja_builtins.h"
#include "engine/text/jinja_call.h"
#include "engine/text/jinja_format.h"
#include "engine/text/jinja_interpreter.h"
#include "engine/text/jinja_methods.h"
#include "engine/text/jinja_ops.h"
#include "engine/text/jinja_print.h"
#include "engine/text/jinja_unicode.h"

namespace millrace::jinja {
namespace {

constexpr int64_t kMaxIndent = 4096;

Value filter_trim(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "trim", {"chars"});
  return strip_text(interpreter.heap(), to_str(interpreter.heap(), value), p[0], true, true);
}

template <CaseMap kMap>
Value filter_case(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  Parameters(arguments, "case filter", {});
  return map_case(interpreter.heap(), to_str(interpreter.heap(), value), kMap);
}

// Jinja's own title(): a word starts after white space, a hyphen or an opening bracket.
Value filter_title(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  Parameters(arguments, "title", {});
  Heap& heap = interpreter.heap();
  const Value text = to_str(heap, value);
  const std::string_view bytes = text.as_string().bytes;
  TextBuilder out(heap);
  const auto starts_word = [](int32_t c) {
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  for (size_t i = 0; i < bytes.size();) {
    const bool separator = starts_word(decode_at(bytes, i).value);
    size_t end = i;
    while (end < bytes.size() && starts_word(decode_at(bytes, end).value) == separator)
      end += decode_at(bytes, end).size;
    if (separator) {
      out.append(text.as_string(), i, end);
    } else {
      const size_t first = i + decode_at(bytes, i).size;
      out.append(map_case(heap, substring(heap, text, i, first), CaseMap::kUpper).as_string());
      out.append(map_case(heap, substring(heap, text, first, end), CaseMap::kLower).as_string());
    }
    i = end;
  }
  return out.finish();
}

Value filter_replace(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "replace", {"old", "new", "count"}, 2);
  Heap& heap = interpreter.heap();
  const Value from = to_str(heap, p[0]);
  const Value to = to_str(heap, p[1]);
  return replace_text(heap, to_str(heap, value), from.as_string(), to.as_string(),
                      p[2].is_none() ? -1 : require_int(p[2], "count"));
}

Value filter_string(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  Parameters(arguments, "string", {});
  return to_str(interpreter.heap(), value);
}

Value filter_safe(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  Parameters(arguments, "safe", {});
  TextBuilder out(interpreter.heap());
  append_str(out, interpreter.heap(), value);
  Value result = out.finish();
  result.as_string().markup = true;
  return result;
}

template <bool kForce>
Value filter_escape(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  Parameters(arguments, "escape", {});
  if (!kForce && value.is_string() && value.as_string().markup) return value;
  TextBuilder out(interpreter.heap());
  append_escaped(out, to_str(interpreter.heap(), value).as_string());
  Value result = out.finish();
  result.as_string().markup = true;
  return result;
}

Value filter_indent(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "indent", {"width", "first", "blank"});
  Heap& heap = interpreter.heap();
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_string()) fail("indent needs a text, not " + std::string(type_name(value)));
  Value indention = p[0];
  if (!indention.is_string()) {
    const int64_t width = p.has(0) ? require_int(p[0], "the indent width") : 4;
    if (width > kMaxIndent) fail("indent is limited to 4096 characters");
    indention =
        make_string(heap, std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '));
  }
  // A final newline gives an empty last line, which stays empty.
  const Value terminated = binary(heap, BinaryOp::kAdd, value, make_string(heap, "\n"));
  const Value lines = split_lines(heap, terminated, false);
  TextBuilder out(heap);
  bool first = true;
  for (const Value& line : lines.as_list().items) {
    if (!first) out.append("\n");
    const bool indents = first ? truthy(p[1]) : truthy(p[2]) || !line.as_string().bytes.empty();
    if (indents) out.append(indention.as_string());
    out.append(line.as_string());
    first = false;
  }
  return out.finish();
}

Value filter_tojson(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = truthy(p[0]);
  style.sort_keys = truthy(p[3]);
  if (p[1].is_string()) {
    style.indent = std::string(p[1].as_string().bytes);
  } else if (!p[1].is_none()) {
    const int64_t width = require_int(p[1], "the indent of tojson");
    if (width > kMaxIndent) fail("the indent of tojson is limited to 4096 characters");
    style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  if (style.indent) style.item_separator = ",";
  if (!p[2].is_none()) {
    const Value pair = iterate(interpreter.heap(), p[2]);
    const auto& items = pair.as_list().items;
    if (items.size() != 2 || !items[0].is_string() || !items[1].is_string()) {
      fail("the separators of tojson are two texts");
    }
    style.item_separator = std::string(items[0].as_string().bytes);
    style.key_separator = std::string(items[1].as_string().bytes);
  }
  TextBuilder out(interpreter.heap());
  append_json(out, interpreter.heap(), value, style);
  return out.finish();
}

// int() and float() of a text: white space around it and underscores between digits are allowed.
std::optional<std::string> clean_number(std::string_view text) {
  size_t begin = 0;
  while (begin < text.size() && is_space(static_cast<unsigned char>(text[begin]))) ++begin;
  size_t end = text.size();
  while (end > begin && is_space(static_cast<unsigned char>(text[end - 1]))) --end;
  std::string result;
  for (size_t i = begin; i < end; ++i) {
    if (text[i] != '_') {
      result.push_back(text[i]);
      continue;
    }
    const auto is_hex = [&](size_t at) {
      return at > begin && at < end && std::isxdigit(static_cast<unsigned char>(text[at])) != 0;
    };
    if (i == begin || (!is_hex(i - 1) && i - 1 != begin) || !is_hex(i + 1)) return std::nullopt;
  }
  if (result.empty()) return std::nullopt;
  return result;
}

std::optional<int64_t> parse_int(std::string_view text, int64_t base) {
  auto number = clean_number(text);
  if (!number) return std::nullopt;
  std::string_view digits = *number;
  const bool negative = digits[0] == '-';
  if (digits[0] == '-' || digits[0] == '+') digits.remove_prefix(1);
  if (digits.size() > 2 && digits[0] == '0') {
    const char kind = static_cast<char>(digits[1] | 0x20);
    const int64_t named = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (named != 0 && (base == named || base == 0)) {
      digits.remove_prefix(2);
      base = named;
    }
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36) fail("the base of int must be 0 or from 2 to 36");
  uint64_t magnitude = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), magnitude,
                                            static_cast<int>(base));
  if (end != digits.data() + digits.size() || digits.empty()) return std::nullopt;
  if (error == std::errc::result_out_of_range || magnitude > static_cast<uint64_t>(INT64_MAX)) {
    fail("integer result does not fit into 64 bits");
  }
  return negative ? -static_cast<int64_t>(magnitude) : static_cast<int64_t>(magnitude);
}

std::optional<double> parse_float(std::string_view text) {
  const auto number = clean_number(text);
  if (!number || number->find_first_of("xX") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(number->c_str(), &end);
  if (end != number->c_str() + number->size()) return std::nullopt;
  return value;
}

Value truncate_float(double value, const Value& otherwise) {
  if (!std::isfinite(value)) return otherwise;
  if (std::abs(value) >= 9.2e18) fail("integer result does not fit into 64 bits");
  return Value::integer(static_cast<int64_t>(value));
}

Value filter_int(Interpreter&, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "int", {"default", "base"});
  const Value otherwise = p.has(0) ? p[0] : Value::integer(0);
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_integral()) return Value::integer(value.as_int());
  if (value.is(Kind::kFloat)) return truncate_float(value.as_double(), otherwise);
  if (!value.is_string()) return otherwise;
  const std::string_view text = value.as_string().bytes;
  if (const auto number = parse_int(text, p.has(1) ? require_int(p[1], "base") : 10))
    return Value::integer(*number);
  const auto real = parse_float(text);
  return real ? truncate_float(*real, otherwise) : otherwise;
}

Value filter_float(Interpreter&, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "float", {"default"});
  const Value otherwise = p.has(0) ? p[0] : Value::real(0);
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_number()) return Value::real(value.as_double());
  if (!value.is_string()) return otherwise;
  const auto real = parse_float(value.as_string().bytes);
  return real ? Value::real(*real) : otherwise;
}

// Rounds half to even in the decimal value that the double exactly has, as Python's round().
double round_decimal(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 300) return value;
  if (digits < 0) {
    if (digits < -300) return std::copysign(0.0, value);
    const double scale = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / scale) * scale;
  }
  char buffer[700];
  std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(digits), value);
  return std::strtod(buffer, nullptr);
}

Value filter_round(Interpreter&, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "round", {"precision", "method"});
  const int64_t precision = p.has(0) ? require_int(p[0], "precision") : 0;
  const std::string_view method = p[1].is_string() ? p[1].as_string().bytes : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    fail("method must be common, ceil or floor");
  }
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_number()) fail("round needs a number, not " + std::string(type_name(value)));
  if (method == "common") {
    if (value.is(Kind::kFloat)) return Value::real(round_decimal(value.as_double(), precision));
    if (precision >= 0) return Value::integer(value.as_int());
    return truncate_float(round_decimal(value.as_double(), precision), Value::integer(0));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.as_double() * scale;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value filter_abs(Interpreter&, const Value& value, Arguments& arguments) {
  Parameters(arguments, "abs", {});
  if (value.is(Kind::kFloat)) return Value::real(std::abs(value.as_double()));
  const Value negative = negate(value);
  return negative.as_int() < 0 ? Value::integer(value.as_int()) : negative;
}

Value filter_default(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "default", {"default_value", "boolean"});
  const bool replaces = value.is_undefined() || (truthy(p[1]) && !truthy(value));
  if (!replaces) return value;
  return p.has(0) ? p[0] : make_string(interpreter.heap(), "");
}

Value filter_format(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  Heap& heap = interpreter.heap();
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    fail("format takes positional or keyword arguments, not both");
  }
  Value values = value_of(make_list(heap, Flavor::kTuple));
  for (const Value& argument : arguments.positional) push(heap, values.as_list(), argument);
  if (!arguments.named.empty()) {
    values = value_of(make_dict(heap));
    for (const auto& [name, argument] : arguments.named)
      values.as_dict().set(make_string(heap, name), argument);
  }
  return percent_format(heap, to_str(heap, value).as_string(), values);
}

Value filter_center(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "center", {"width"});
  Arguments width;
  width.positional.push_back(p.has(0) ? p[0] : Value::integer(80));
  return find_string_method("center")(interpreter, to_str(interpreter.heap(), value), width);
}

Value filter_wordcount(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  Parameters(arguments, "wordcount", {});
  const Value text = to_str(interpreter.heap(), value);
  const std::string_view bytes = text.as_string().bytes;
  int64_t count = 0;
  bool inside = false;
  for (size_t i = 0; i < bytes.size(); i += decode_at(bytes, i).size) {
    const bool word = is_word(decode_at(bytes, i).value);
    count += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value::integer(count);
}

Value filter_truncate(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "truncate", {"length", "killwords", "end", "leeway"});
  Heap& heap = interpreter.heap();
  const int64_t length = p.has(0) ? require_int(p[0], "length") : 255;
  const int64_t leeway = p.has(3) && !p[3].is_none() ? require_int(p[3], "leeway") : 5;
  const Value end = p.has(2) ? to_str(heap, p[2]) : make_string(heap, "...");
  if (length < end.as_string().length() || leeway < 0)
    fail("truncate needs a length above that of its end");
  if (length_of(value) <= length + leeway) return value;
  const Value text = to_str(heap, value);
  Value kept =
      slice(heap, text, Value(), Value::integer(length - end.as_string().length()), Value());
  if (!truthy(p[1])) {
    const size_t space = kept.as_string().bytes.rfind(' ');
    if (space != std::string_view::npos) kept = substring(heap, kept, 0, space);
  }
  return binary(heap, BinaryOp::kAdd, kept, end);
}

Value filter_urlencode(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  Parameters(arguments, "urlencode", {});
  Heap& heap = interpreter.heap();
  const auto quote = [&heap](TextBuilder& out, const Value& text, bool keep_slash) {
    const StringObject& string = text.as_string();
    for (size_t i = 0; i < string.bytes.size(); ++i) {
      const char c = string.bytes[i];
      const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' ||
                         c == '-' || c == '~' || (keep_slash && c == '/');
      if (plain) {
        out.append(string, i, i + 1);
      } else if (c == ' ' && !keep_slash) {
        out.append("+");
      } else {
        char buffer[4];
        std::snprintf(buffer, sizeof(buffer), "%%%02X",
                      static_cast<unsigned>(static_cast<unsigned char>(c)));
        out.append(buffer);
      }
    }
    heap.step(static_cast<int64_t>(string.bytes.size() >> 6));
  };
  TextBuilder out(heap);
  if (value.is_string() || !is_iterable(value)) {
    quote(out, to_str(heap, value), true);
    return out.finish();
  }
  if (!value.is(Kind::kDict)) fail("urlencode of pairs is not supported");
  bool first = true;
  for (const auto& [key, entry] : value.as_dict().entries) {
    if (!first) out.append("&");
    first = false;
    quote(out, to_str(heap, key), false);
    out.append("=");
    quote(out, to_str(heap, entry), false);
  }
  return out.finish();
}

constexpr NamedFunction kTextFilters[] = {
    {"trim", filter_trim},
    {"upper", filter_case<CaseMap::kUpper>},
    {"lower", filter_case<CaseMap::kLower>},
    {"capitalize", filter_case<CaseMap::kCapitalize>},
    {"title", filter_title},
    {"replace", filter_replace},
    {"string", filter_string},
    {"safe", filter_safe},
    {"escape", filter_escape<false>},
    {"e", filter_escape<false>},
    {"forceescape", filter_escape<true>},
    {"indent", filter_indent},
    {"tojson", filter_tojson},
    {"int", filter_int},
    {"float", filter_float},
    {"round", filter_round},
    {"abs", filter_abs},
    {"default", filter_default},
    {"d", filter_default},
    {"format", filter_format},
    {"center", filter_center},
    {"wordcount", filter_wordcount},
    {"truncate", filter_truncate},
    {"urlencode", filter_urlencode},
};

}  // namespace

Method find_text_filter(std::string_view name) {
  for (const NamedFunction& entry : kTextFilters) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

Method find_filter(std::string_view name) {
  const Method text = find_text_filter(name);
  return text != nullptr ? text : find_sequence_filter(name);
}

}  // namespace millrace::jinja
