#include "engine/text/jinja_format.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

#include "engine/text/jinja_interpreter.h"
#include "engine/text/jinja_ops.h"
#include "engine/text/jinja_print.h"
#include "engine/text/jinja_unicode.h"

namespace millrace::jinja {
namespace {

// No sensible template pads or prints digits beyond this.
constexpr int64_t kMaxWidth = 4096;

struct Spec {
  std::string fill = " ";
  char align = 0;  // '<', '>', '^', '='; 0: the type's default
  char sign = '-';
  bool alternate = false;
  bool grouped = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

int64_t read_number(std::string_view text, size_t& i) {
  int64_t value = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    value = value * 10 + (text[i] - '0');
    if (value > kMaxWidth) fail("a format asks for more than 4096 characters");
  }
  return value;
}

std::string group_digits(std::string digits) {
  const size_t end = std::min(digits.find_first_of(".e"), digits.size());
  for (size_t i = end; i > 3 && i - 3 > 0; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string unsigned_in_base(uint64_t value, unsigned base, bool upper) {
  std::string digits;
  do {
    digits.push_back((upper ? "0123456789ABCDEF" : "0123456789abcdef")[value % base]);
    value /= base;
  } while (value != 0);
  std::reverse(digits.begin(), digits.end());
  return digits;
}

// Digits of |value| and its prefix ("0x"), without the sign.
std::string integer_digits(int64_t value, const Spec& spec, std::string& prefix) {
  const uint64_t magnitude =
      value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  switch (spec.type) {
    case 'x':
    case 'X':
      if (spec.alternate) prefix = spec.type == 'x' ? "0x" : "0X";
      return unsigned_in_base(magnitude, 16, spec.type == 'X');
    case 'o':
      if (spec.alternate) prefix = "0o";
      return unsigned_in_base(magnitude, 8, false);
    case 'b':
      if (spec.alternate) prefix = "0b";
      return unsigned_in_base(magnitude, 2, false);
    default: return unsigned_in_base(magnitude, 10, false);
  }
}

std::string float_digits(double value, const Spec& spec) {
  const double magnitude = std::abs(value);
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : "inf";
  if (spec.type == 0 && spec.precision < 0) return float_repr(magnitude);
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  const char type = spec.type == 0 ? 'g' : spec.type == '%' ? 'f' : spec.type;
  const char format[] = {'%', '.', '*', type, 0};
  std::string digits(static_cast<size_t>(precision) + 340, ' ');
  const int size = std::snprintf(digits.data(), digits.size(), format, precision,
                                 spec.type == '%' ? magnitude * 100 : magnitude);
  digits.resize(static_cast<size_t>(size));
  if (spec.type == '%') digits += '%';
  return digits;
}

void append_padded(TextBuilder& out, const Spec& spec, char default_align, const std::string& sign,
                   const StringObject& body) {
  const auto length = static_cast<int64_t>(sign.size()) + body.length();
  const int64_t padding = std::max<int64_t>(spec.width - length, 0);
  const char align = spec.align == 0 ? default_align : spec.align;
  const int64_t left = align == '>' ? padding : align == '^' ? padding / 2 : 0;
  for (int64_t i = 0; i < left; ++i) out.append(spec.fill);
  out.append(sign);
  if (align == '=') {
    for (int64_t i = 0; i < padding; ++i) out.append(spec.fill);
  }
  out.append(body);
  if (align != '=') {
    for (int64_t i = left; i < padding; ++i) out.append(spec.fill);
  }
}

void append_number(TextBuilder& out, const Value& value, const Spec& spec) {
  std::string prefix, digits;
  bool negative = false;
  const bool as_float =
      value.is(Kind::kFloat) ||
      (spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos);
  if (as_float) {
    negative = std::signbit(value.as_double());
    digits = float_digits(value.as_double(), spec);
  } else {
    negative = value.as_int() < 0;
    digits = integer_digits(value.as_int(), spec, prefix);
  }
  if (spec.grouped) digits = group_digits(digits);
  const std::string sign = (negative           ? "-"
                            : spec.sign == '+' ? "+"
                            : spec.sign == ' ' ? " "
                                               : "") +
                           prefix;
  append_padded(out, spec, '>', sign, StringObject(std::move(digits)));
}

void append_text(TextBuilder& out, Heap& heap, const Value& text, const Spec& spec) {
  Value body = text;
  if (spec.precision >= 0 && text.as_string().length() > spec.precision) {
    body = substring(heap, text, 0, offset_of(text.as_string().bytes, spec.precision));
  }
  append_padded(out, spec, '<', "", body.as_string());
}

// One conversion of "%": flags, width, precision, type.
class PercentFormatter {
 public:
  PercentFormatter(Heap& heap, const StringObject& format, const Value& values)
      : heap_(heap), format_(format), values_(values), out_(heap) {}

  Value run() {
    const std::string_view text = format_.bytes;
    for (size_t i = 0; i < text.size();) {
      const size_t percent = std::min(text.find('%', i), text.size());
      out_.append(format_, i, percent);
      i = percent;
      if (i < text.size()) {
        ++i;
        convert(i);
      }
    }
    if (is_tuple() ? next_ < values_.as_list().items.size()
                   : next_ == 0 && !values_.is(Kind::kDict)) {
      fail("not all arguments converted during string formatting");
    }
    return out_.finish();
  }

 private:
  bool is_tuple() const {
    return values_.is(Kind::kList) && values_.as_list().flavor == Flavor::kTuple;
  }

  Value argument() {
    if (is_tuple() ? next_ >= values_.as_list().items.size() : next_ > 0) {
      fail("not enough arguments for format string");
    }
    const size_t i = next_++;
    return is_tuple() ? values_.as_list().items[i] : values_;
  }

  Value keyed(size_t& i) {
    const size_t close = format_.bytes.find(')', i);
    if (close == std::string_view::npos) fail("incomplete format key");
    if (!values_.is(Kind::kDict)) fail("format requires a mapping");
    const std::string_view key = format_.bytes.substr(i + 1, close - i - 1);
    const Value* found = values_.as_dict().find(key);
    if (found == nullptr) fail("format key '" + std::string(key) + "' is missing");
    i = close + 1;
    return *found;
  }

  void convert(size_t& i);
  // %c: a code point, or a text of one character.
  Value character(const Value& value) {
    if (value.is_string() && value.as_string().length() == 1) return value;
    if (!value.is_integral() || value.as_int() < 0 || value.as_int() > 0x10FFFF ||
        (value.as_int() >= 0xD800 && value.as_int() <= 0xDFFF)) {
      fail("%c requires a code point or a single character");
    }
    std::string text;
    append_code_point(text, static_cast<int32_t>(value.as_int()));
    return make_string(heap_, text);
  }

  Heap& heap_;
  const StringObject& format_;
  const Value& values_;
  TextBuilder out_;
  size_t next_ = 0;
};

void PercentFormatter::convert(size_t& i) {
  const std::string_view text = format_.bytes;
  Value value = Value::absent();
  if (i < text.size() && text[i] == '(') value = keyed(i);
  Spec spec;
  spec.align = '>';
  bool zero = false;
  for (; i < text.size(); ++i) {
    if (text[i] == '-')
      spec.align = '<';
    else if (text[i] == '+')
      spec.sign = '+';
    else if (text[i] == ' ' && spec.sign != '+')
      spec.sign = ' ';
    else if (text[i] == '#')
      spec.alternate = true;
    else if (text[i] == '0')
      zero = true;
    else
      break;
  }
  spec.width = read_number(text, i);
  if (i < text.size() && text[i] == '.') spec.precision = read_number(text, ++i);
  if (i >= text.size()) fail("incomplete format");
  const char type = text[i++];
  if (type == '%') return out_.append("%");
  if (value.is(Kind::kAbsent)) value = argument();
  if (type == 's' || type == 'r') {
    TextBuilder body(heap_);
    type == 's' ? append_str(body, heap_, value) : append_repr(body, heap_, value);
    return append_text(out_, heap_, body.finish(), spec);
  }
  if (value.is_undefined()) fail_undefined(value);
  if (type == 'c') return append_text(out_, heap_, character(value), spec);
  const bool integral = std::string_view("diuxXo").find(type) != std::string_view::npos;
  if (!integral && std::string_view("eEfFgG").find(type) == std::string_view::npos) {
    fail("unsupported format character '" + std::string(1, type) + "'");
  }
  if (!value.is_number() ||
      (value.is(Kind::kFloat) && integral && !std::isfinite(value.as_double()))) {
    fail("%" + std::string(1, type) + " format: a number is required, not " +
         std::string(type_name(value)));
  }
  if (zero && spec.align == '>') {
    spec.align = '=';
    spec.fill = "0";
  }
  spec.type = type == 'i' || type == 'u' || type == 'd' ? 'd' : type;
  if (integral && value.is(Kind::kFloat)) {
    if (std::abs(value.as_double()) >= 9e18) fail("integer result does not fit into 64 bits");
    value = Value::integer(static_cast<int64_t>(value.as_double()));
  }
  if (integral) spec.precision = -1;
  append_number(out_, value, spec);
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  size_t i = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!text.empty()) {
    const size_t first = decode_at(text, 0).size;
    if (first < text.size() && is_align(text[first])) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      i = first + 1;
    } else if (is_align(text[0])) {
      spec.align = text[0];
      i = 1;
    }
  }
  if (i < text.size() && (text[i] == '+' || text[i] == '-' || text[i] == ' '))
    spec.sign = text[i++];
  if (i < text.size() && text[i] == '#') spec.alternate = ++i > 0;
  if (i < text.size() && text[i] == '0') {
    ++i;
    if (spec.align == 0) {
      spec.fill = "0";
      spec.align = '=';
    }
  }
  spec.width = read_number(text, i);
  if (i < text.size() && text[i] == ',') spec.grouped = ++i > 0;
  if (i < text.size() && text[i] == '.') spec.precision = read_number(text, ++i);
  if (i < text.size()) spec.type = text[i++];
  if (i != text.size()) fail("invalid format specifier '" + std::string(text) + "'");
  return spec;
}

void append_formatted(TextBuilder& out, Heap& heap, const Value& value, std::string_view text) {
  if (text.empty()) return append_str(out, heap, value);
  const Spec spec = parse_spec(text);
  if (value.is_string() || value.is_undefined()) {
    if (spec.type != 0 && spec.type != 's') fail("unknown format code for a string");
    return append_text(out, heap, to_str(heap, value), spec);
  }
  if (!value.is_number())
    fail("unsupported format string passed to " + std::string(type_name(value)));
  const std::string_view legal = value.is(Kind::kFloat) ? "eEfFgG%" : "dxXobeEfFgG%";
  if (spec.type != 0 && legal.find(spec.type) == std::string_view::npos) {
    fail("unknown format code '" + std::string(1, spec.type) + "' for a number");
  }
  if (value.is(Kind::kBool) && spec.type == 0)
    return append_text(out, heap, to_str(heap, value), spec);
  append_number(out, value, spec);
}

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& interpreter, const StringObject& format, const Arguments& arguments)
      : interpreter_(interpreter),
        format_(format),
        arguments_(arguments),
        out_(interpreter.heap()) {}

  Value run() {
    const std::string_view text = format_.bytes;
    for (size_t i = 0; i < text.size();) {
      const size_t brace = std::min(text.find_first_of("{}", i), text.size());
      out_.append(format_, i, brace);
      i = brace;
      if (i >= text.size()) break;
      if (i + 1 < text.size() && text[i + 1] == text[i]) {
        out_.append(format_, i, i + 1);
        i += 2;
        continue;
      }
      if (text[i] == '}') fail("single '}' encountered in format string");
      const size_t close = text.find('}', i);
      if (close == std::string_view::npos) fail("expected '}' before end of string");
      field(text.substr(i + 1, close - i - 1));
      i = close + 1;
    }
    return out_.finish();
  }

 private:
  void field(std::string_view text) {
    if (text.find('{') != std::string_view::npos) fail("nested format fields are not supported");
    const size_t name_end = std::min(text.find_first_of("!:"), text.size());
    Value value = lookup(text.substr(0, name_end));
    std::string_view rest = text.substr(name_end);
    if (!rest.empty() && rest[0] == '!') {
      if (rest.size() < 2 || (rest[1] != 'r' && rest[1] != 's'))
        fail("unknown conversion in format string");
      TextBuilder body(interpreter_.heap());
      rest[1] == 'r' ? append_repr(body, interpreter_.heap(), value)
                     : append_str(body, interpreter_.heap(), value);
      value = body.finish();
      rest.remove_prefix(2);
    }
    if (!rest.empty() && rest[0] != ':') fail("expected ':' after conversion specifier");
    append_formatted(out_, interpreter_.heap(), value, rest.empty() ? rest : rest.substr(1));
  }

  Value lookup(std::string_view name) {
    size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, end));
    while (end < name.size()) {
      const bool item = name[end] == '[';
      const size_t stop =
          item ? name.find(']', end) : std::min(name.find_first_of(".[", end + 1), name.size());
      if (stop == std::string_view::npos) fail("missing ']' in format string");
      const std::string_view key = name.substr(end + 1, stop - end - 1);
      const bool index = item && !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
                           return c >= '0' && c <= '9';
                         });
      size_t i = 0;
      value = index  ? interpreter_.item(value, Value::integer(read_number(key, i)))
              : item ? interpreter_.item(value, make_string(interpreter_.heap(), key))
                     : interpreter_.attribute(value, key);
      if (value.is_undefined()) fail("format field '" + std::string(name) + "' is missing");
      end = item ? stop + 1 : stop;
    }
    return value;
  }

  Value first(std::string_view name) {
    size_t i = 0;
    const bool automatic = name.empty();
    const int64_t index = automatic ? next_++ : read_number(name, i);
    if (automatic || i == name.size()) {
      if (index >= static_cast<int64_t>(arguments_.positional.size())) {
        fail("replacement index " + std::to_string(index) +
             " out of range for positional arguments");
      }
      return arguments_.positional[static_cast<size_t>(index)];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    fail("format argument '" + std::string(name) + "' is missing");
  }

  Interpreter& interpreter_;
  const StringObject& format_;
  const Arguments& arguments_;
  TextBuilder out_;
  int64_t next_ = 0;
};

}  // namespace

Value percent_format(Heap& heap, const StringObject& format, const Value& values) {
  heap.scan(format.bytes.size());
  return PercentFormatter(heap, format, values).run();
}

Value brace_format(Interpreter& interpreter, const Value& format, const Arguments& arguments) {
  return BraceFormatter(interpreter, format.as_string(), arguments).run();
}

}  // namespace millrace::jinja
