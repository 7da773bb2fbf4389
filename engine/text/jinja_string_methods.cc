// Methods of Python's str. All keep the marks of the text they are called on.
#include <algorithm>
#include <string>
#include <utility>

#include "engine/text/jinja_builtins.h"
#include "engine/text/jinja_call.h"
#include "engine/text/jinja_format.h"
#include "engine/text/jinja_interpreter.h"
#include "engine/text/jinja_methods.h"
#include "engine/text/jinja_ops.h"
#include "engine/text/jinja_unicode.h"

namespace millrace::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

std::string_view bytes_of(const Value& value) { return value.as_string().bytes; }

const StringObject& require_text(const Value& value, std::string_view what) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_string()) {
    fail(std::string(what) + " must be str, not " + std::string(type_name(value)));
  }
  return value.as_string();
}

bool is_marked(const StringObject& text, size_t offset) {
  if (text.all_marked) return true;
  const auto after =
      std::upper_bound(text.marks.begin(), text.marks.end(), offset,
                       [](size_t o, const ByteRange& range) { return o < range.end; });
  return after != text.marks.end() && after->begin <= offset;
}

Value strip_method(Interpreter& interpreter, const Value& self, Arguments& arguments, bool left,
                   bool right) {
  const Parameters p(arguments, "strip", {"chars"});
  return strip_text(interpreter.heap(), self, p[0], left, right);
}
Value str_strip(Interpreter& i, const Value& self, Arguments& a) {
  return strip_method(i, self, a, true, true);
}
Value str_lstrip(Interpreter& i, const Value& self, Arguments& a) {
  return strip_method(i, self, a, true, false);
}
Value str_rstrip(Interpreter& i, const Value& self, Arguments& a) {
  return strip_method(i, self, a, false, true);
}

template <CaseMap kMap>
Value str_case(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  Parameters(arguments, "case method", {});
  return map_case(interpreter.heap(), self, kMap);
}

// Splitting at white space: runs count as one, and none at the ends.
void split_space(Heap& heap, const Value& self, int64_t limit, bool from_right, ListObject& out) {
  const std::string_view text = bytes_of(self);
  std::vector<ByteRange> words;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = decode_at(text, i);
    if (is_space(c.value) && c.well_formed) {
      i += c.size;
      continue;
    }
    size_t end = i;
    while (end < text.size()) {
      const CodePoint w = decode_at(text, end);
      if (is_space(w.value) && w.well_formed) break;
      end += w.size;
    }
    heap.step();
    words.push_back({i, end});
    i = end;
  }
  // Beyond the limit the rest stays one piece, stripped at its outer end only when Python strips
  // it: on the left for split, on the right for rsplit.
  const size_t splits = limit < 0 ? words.size() : static_cast<size_t>(limit);
  if (words.size() > splits && from_right) {
    words.erase(words.begin(), words.end() - static_cast<ptrdiff_t>(splits) - 1);
    words.front().begin = 0;
  } else if (words.size() > splits) {
    words.resize(splits + 1);
    words.back().end = text.size();
  }
  for (const ByteRange& word : words) push(heap, out, substring(heap, self, word.begin, word.end));
}

void split_at(Heap& heap, const Value& self, std::string_view separator, int64_t limit,
              bool from_right, ListObject& out) {
  const std::string_view text = bytes_of(self);
  if (separator.empty()) fail("empty separator");
  heap.step(static_cast<int64_t>(text.size() >> 10));
  std::vector<size_t> cuts;  // where separators start
  if (from_right) {
    heap.step(static_cast<int64_t>((text.size() * separator.size()) >> 12));
    size_t end = text.size();
    while (limit < 0 || static_cast<int64_t>(cuts.size()) < limit) {
      if (end < separator.size()) break;
      const size_t found = text.rfind(separator, end - separator.size());
      if (found == kNone) break;
      heap.step();
      cuts.push_back(found);
      end = found;
    }
    std::reverse(cuts.begin(), cuts.end());
  } else {
    for (size_t from = 0; limit < 0 || static_cast<int64_t>(cuts.size()) < limit;) {
      const size_t found = find_text(text, separator, from);
      if (found == kNone) break;
      heap.step();
      cuts.push_back(found);
      from = found + separator.size();
    }
  }
  size_t begin = 0;
  for (const size_t cut : cuts) {
    push(heap, out, substring(heap, self, begin, cut));
    begin = cut + separator.size();
  }
  push(heap, out, substring(heap, self, begin, text.size()));
}

Value split_method(Interpreter& interpreter, const Value& self, Arguments& arguments,
                   bool from_right) {
  const Parameters p(arguments, "split", {"sep", "maxsplit"});
  const int64_t limit = p.has(1) ? require_int(p[1], "maxsplit") : -1;
  Value result = value_of(make_list(interpreter.heap()));
  if (p[0].is_none()) {
    split_space(interpreter.heap(), self, limit, from_right, result.as_list());
  } else {
    split_at(interpreter.heap(), self, require_text(p[0], "sep").bytes, limit, from_right,
             result.as_list());
  }
  return result;
}
Value str_split(Interpreter& i, const Value& self, Arguments& a) {
  return split_method(i, self, a, false);
}
Value str_rsplit(Interpreter& i, const Value& self, Arguments& a) {
  return split_method(i, self, a, true);
}

Value str_splitlines(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters p(arguments, "splitlines", {"keepends"});
  return split_lines(interpreter.heap(), self, truthy(p[0]));
}

Value partition_method(Interpreter& interpreter, const Value& self, Arguments& arguments,
                       bool from_right) {
  Heap& heap = interpreter.heap();
  const Parameters p(arguments, "partition", {"sep"}, 1);
  const std::string_view separator = require_text(p[0], "sep").bytes;
  if (separator.empty()) fail("empty separator");
  Value parts = value_of(make_list(heap));
  split_at(heap, self, separator, 1, from_right, parts.as_list());
  Value result = value_of(make_list(heap, Flavor::kTuple));
  ListObject& out = result.as_list();
  if (parts.as_list().items.size() == 1) {
    if (!from_right) push(heap, out, self);
    push(heap, out, make_string(heap, ""));
    push(heap, out, make_string(heap, ""));
    if (from_right) push(heap, out, self);
    return result;
  }
  push(heap, out, parts.as_list().items[0]);
  push(heap, out, p[0]);
  push(heap, out, parts.as_list().items[1]);
  return result;
}
Value str_partition(Interpreter& i, const Value& self, Arguments& a) {
  return partition_method(i, self, a, false);
}
Value str_rpartition(Interpreter& i, const Value& self, Arguments& a) {
  return partition_method(i, self, a, true);
}

// The part of `text` between the code point bounds of find, count, startswith ...
ByteRange bounded(const StringObject& text, const Value& start, const Value& stop) {
  const int64_t length = text.length();
  const auto clip = [length](const Value& v, int64_t otherwise) {
    if (v.is_none()) return otherwise;
    const int64_t i = require_int(v, "a position");
    return i < 0 ? std::max<int64_t>(i + length, 0) : std::min(i, length + 1);
  };
  const int64_t from = clip(start, 0);
  const int64_t to = std::min(clip(stop, length), length);
  if (from > to) return {1, 0};
  return {offset_of(text.bytes, from), offset_of(text.bytes, to)};
}

template <bool kEnd>
Value str_affix(Interpreter&, const Value& self, Arguments& arguments) {
  const Parameters p(arguments, kEnd ? "endswith" : "startswith", {"affix", "start", "end"}, 1);
  const ByteRange range = bounded(self.as_string(), p[1], p[2]);
  if (range.begin > range.end) return Value::boolean(false);
  const std::string_view text = bytes_of(self).substr(range.begin, range.end - range.begin);
  const auto matches = [text](const Value& affix) {
    const std::string_view wanted = require_text(affix, "the affix").bytes;
    return kEnd ? text.ends_with(wanted) : text.starts_with(wanted);
  };
  if (!p[0].is(Kind::kList)) return Value::boolean(matches(p[0]));
  if (p[0].as_list().flavor != Flavor::kTuple)
    fail("the affix must be str or a tuple of str, not list");
  for (const Value& affix : p[0].as_list().items) {
    if (matches(affix)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

Value find_method(Interpreter& interpreter, const Value& self, Arguments& arguments,
                  bool from_right, bool must) {
  const Parameters p(arguments, "find", {"sub", "start", "end"}, 1);
  const std::string_view wanted = require_text(p[0], "sub").bytes;
  const ByteRange range = bounded(self.as_string(), p[1], p[2]);
  size_t found = kNone;
  if (range.begin <= range.end) {
    const std::string_view text = bytes_of(self).substr(range.begin, range.end - range.begin);
    interpreter.heap().step(
        static_cast<int64_t>((text.size() * (from_right ? wanted.size() + 1 : 4)) >> 12));
    found = from_right ? text.rfind(wanted) : find_text(text, wanted, 0);
  }
  if (found == kNone) {
    if (must) fail("substring not found");
    return Value::integer(-1);
  }
  return Value::integer(count_code_points(bytes_of(self).substr(0, range.begin + found)));
}
Value str_find(Interpreter& i, const Value& self, Arguments& a) {
  return find_method(i, self, a, false, false);
}
Value str_rfind(Interpreter& i, const Value& self, Arguments& a) {
  return find_method(i, self, a, true, false);
}
Value str_index(Interpreter& i, const Value& self, Arguments& a) {
  return find_method(i, self, a, false, true);
}
Value str_rindex(Interpreter& i, const Value& self, Arguments& a) {
  return find_method(i, self, a, true, true);
}

Value str_count(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters p(arguments, "count", {"sub", "start", "end"}, 1);
  const std::string_view wanted = require_text(p[0], "sub").bytes;
  const ByteRange range = bounded(self.as_string(), p[1], p[2]);
  if (range.begin > range.end) return Value::integer(0);
  const std::string_view text = bytes_of(self).substr(range.begin, range.end - range.begin);
  interpreter.heap().step(static_cast<int64_t>(text.size() >> 6));
  if (wanted.empty()) return Value::integer(count_code_points(text) + 1);
  int64_t count = 0;
  for (size_t at = find_text(text, wanted, 0); at != kNone;
       at = find_text(text, wanted, at + wanted.size()))
    ++count;
  return Value::integer(count);
}

Value str_replace(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters p(arguments, "replace", {"old", "new", "count"}, 2);
  const int64_t count = p.has(2) ? require_int(p[2], "count") : -1;
  return replace_text(interpreter.heap(), self, require_text(p[0], "old"),
                      require_text(p[1], "new"), count);
}

Value str_join(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters p(arguments, "join", {"iterable"}, 1);
  const Value items = iterate(interpreter.heap(), p[0]);
  TextBuilder out(interpreter.heap());
  bool first = true;
  for (const Value& item : items.as_list().items) {
    if (!first) out.append(self.as_string());
    first = false;
    out.append(require_text(item, "a joined item"));
  }
  return out.finish();
}

template <bool kSuffix>
Value str_remove(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters p(arguments, kSuffix ? "removesuffix" : "removeprefix", {"affix"}, 1);
  const std::string_view text = bytes_of(self);
  const std::string_view affix = require_text(p[0], "the affix").bytes;
  if (kSuffix ? !text.ends_with(affix) : !text.starts_with(affix)) return self;
  return kSuffix ? substring(interpreter.heap(), self, 0, text.size() - affix.size())
                 : substring(interpreter.heap(), self, affix.size(), text.size());
}

Value str_format(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  return brace_format(interpreter, self, arguments);
}

// True when there is a character and all are of the class.
template <bool (*kClass)(int32_t)>
Value str_all(Interpreter&, const Value& self, Arguments& arguments) {
  Parameters(arguments, "str test", {});
  const std::string_view text = bytes_of(self);
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = decode_at(text, i);
    if (!kClass(c.value)) return Value::boolean(false);
    i += c.size;
  }
  return Value::boolean(!text.empty());
}

bool is_alnum(int32_t c) { return is_alpha(c) || is_numeric(c); }
bool is_digit_char(int32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0x2070 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089);
}

Value str_isascii(Interpreter&, const Value& self, Arguments& arguments) {
  Parameters(arguments, "isascii", {});
  const std::string_view text = bytes_of(self);
  return Value::boolean(std::all_of(text.begin(), text.end(),
                                    [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

template <bool kUpperCase>
Value str_cased(Interpreter&, const Value& self, Arguments& arguments) {
  Parameters(arguments, kUpperCase ? "isupper" : "islower", {});
  const std::string_view text = bytes_of(self);
  bool any = false;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = decode_at(text, i);
    if (kUpperCase ? is_upper(c.value) : is_lower(c.value)) {
      any = true;
    } else if (is_cased(c.value)) {
      return Value::boolean(false);
    }
    i += c.size;
  }
  return Value::boolean(any);
}

Value str_istitle(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  Parameters(arguments, "istitle", {});
  const std::string_view text = bytes_of(self);
  bool cased = false;
  for (size_t i = 0; i < text.size() && !cased; i += decode_at(text, i).size)
    cased = is_cased(decode_at(text, i).value);
  return Value::boolean(cased && equal(self, map_case(interpreter.heap(), self, CaseMap::kTitle)));
}

Value pad(Heap& heap, const Value& self, Arguments& arguments, int side) {
  const Parameters p(arguments, "justification", {"width", "fillchar"}, 1);
  const int64_t width = require_int(p[0], "width");
  const std::string fill = p.has(1) ? std::string(require_text(p[1], "fillchar").bytes) : " ";
  if (count_code_points(fill) != 1) fail("the fill character must be exactly one character long");
  const int64_t length = self.as_string().length();
  if (width <= length) return self;
  heap.check_text(width);
  const int64_t padding = width - length;
  // Python gives the odd space of center() to the left when the width is odd.
  const int64_t left = side < 0 ? 0 : side > 0 ? padding : padding / 2 + (padding & width & 1);
  TextBuilder out(heap);
  for (int64_t i = 0; i < left; ++i) out.append(fill);
  out.append(self.as_string());
  for (int64_t i = left; i < padding; ++i) out.append(fill);
  heap.step(padding >> 6);
  return out.finish();
}
Value str_ljust(Interpreter& i, const Value& self, Arguments& a) {
  return pad(i.heap(), self, a, -1);
}
Value str_rjust(Interpreter& i, const Value& self, Arguments& a) {
  return pad(i.heap(), self, a, 1);
}
Value str_center(Interpreter& i, const Value& self, Arguments& a) {
  return pad(i.heap(), self, a, 0);
}

Value str_zfill(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters p(arguments, "zfill", {"width"}, 1);
  const int64_t padding = require_int(p[0], "width") - self.as_string().length();
  if (padding <= 0) return self;
  interpreter.heap().check_text(padding);
  const std::string_view text = bytes_of(self);
  const size_t sign = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  TextBuilder out(interpreter.heap());
  out.append(self.as_string(), 0, sign);
  out.append(std::string(static_cast<size_t>(padding), '0'));
  out.append(self.as_string(), sign, text.size());
  return out.finish();
}

constexpr NamedFunction kStringMethods[] = {
    {"strip", str_strip},
    {"lstrip", str_lstrip},
    {"rstrip", str_rstrip},
    {"split", str_split},
    {"rsplit", str_rsplit},
    {"splitlines", str_splitlines},
    {"partition", str_partition},
    {"rpartition", str_rpartition},
    {"startswith", str_affix<false>},
    {"endswith", str_affix<true>},
    {"find", str_find},
    {"rfind", str_rfind},
    {"index", str_index},
    {"rindex", str_rindex},
    {"count", str_count},
    {"replace", str_replace},
    {"join", str_join},
    {"removeprefix", str_remove<false>},
    {"removesuffix", str_remove<true>},
    {"format", str_format},
    {"upper", str_case<CaseMap::kUpper>},
    {"lower", str_case<CaseMap::kLower>},
    {"casefold", str_case<CaseMap::kLower>},
    {"title", str_case<CaseMap::kTitle>},
    {"capitalize", str_case<CaseMap::kCapitalize>},
    {"swapcase", str_case<CaseMap::kSwap>},
    {"isalpha", str_all<is_alpha>},
    {"isalnum", str_all<is_alnum>},
    {"isdigit", str_all<is_digit_char>},
    {"isdecimal", str_all<is_decimal>},
    {"isnumeric", str_all<is_numeric>},
    {"isspace", str_all<is_space>},
    {"isascii", str_isascii},
    {"isupper", str_cased<true>},
    {"islower", str_cased<false>},
    {"istitle", str_istitle},
    {"ljust", str_ljust},
    {"rjust", str_rjust},
    {"center", str_center},
    {"zfill", str_zfill},
};

}  // namespace

Method find_string_method(std::string_view name) {
  for (const NamedFunction& entry : kStringMethods) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

Value strip_text(Heap& heap, const Value& text, const Value& chars, bool left, bool right) {
  const std::string_view bytes = bytes_of(text);
  std::u32string set;
  if (!chars.is_none()) {
    const std::string_view given = require_text(chars, "chars").bytes;
    for (size_t i = 0; i < given.size(); i += decode_at(given, i).size)
      set.push_back(static_cast<char32_t>(decode_at(given, i).value));
  }
  size_t compared = 0;  // characters of the set, not charged yet
  const auto strips = [&](const CodePoint& c) {
    compared += set.size() + 1;
    if (compared >= Heap::kScanBytes) heap.scan(std::exchange(compared, 0));
    if (chars.is_none()) return is_space(c.value) && c.well_formed;
    return set.find(static_cast<char32_t>(c.value)) != std::u32string::npos;
  };
  size_t begin = 0;
  size_t end = bytes.size();
  while (left && begin < end) {
    const CodePoint c = decode_at(bytes, begin);
    if (!strips(c)) break;
    begin += c.size;
  }
  while (right && end > begin) {
    size_t last = end - 1;
    while (last > begin && (static_cast<unsigned char>(bytes[last]) & 0xC0) == 0x80) --last;
    CodePoint c = decode_at(bytes, last);
    if (last + c.size != end) {  // stray continuation bytes
      last = end - 1;
      c = decode_at(bytes, last);
    }
    if (!strips(c)) break;
    end = last;
  }
  return substring(heap, text, begin, end);
}

Value replace_text(Heap& heap, const Value& text, const StringObject& from, const StringObject& to,
                   int64_t count) {
  const StringObject& source = text.as_string();
  if (count == 0) return text;
  TextBuilder out(heap);
  size_t at = 0;
  int64_t done = 0;
  if (from.bytes.empty()) {
    // An empty pattern matches before every character and at the end.
    while (count < 0 || done < count) {
      out.append(to);
      heap.step();
      ++done;
      if (at >= source.bytes.size()) break;
      const size_t next = at + decode_at(source.bytes, at).size;
      out.append(source, at, next);
      at = next;
    }
  } else {
    while (count < 0 || done < count) {
      const size_t found = find_text(source.bytes, from.bytes, at);
      if (found == kNone) break;
      heap.step();
      ++done;
      out.append(source, at, found);
      out.append(to);
      at = found + from.bytes.size();
    }
  }
  if (done == 0) return text;
  if (at < source.bytes.size()) out.append(source, at, source.bytes.size());
  Value result = out.finish();
  result.as_string().markup = source.markup;
  return result;
}

Value map_case(Heap& heap, const Value& text, CaseMap map) {
  const StringObject& source = text.as_string();
  TextBuilder out(heap);
  heap.step(static_cast<int64_t>(source.bytes.size() >> 6));
  bool in_word = false;
  std::string mapped;
  for (size_t i = 0; i < source.bytes.size();) {
    const CodePoint c = decode_at(source.bytes, i);
    mapped.clear();
    if (!c.well_formed) {
      mapped = source.bytes.substr(i, 1);
    } else if (map == CaseMap::kUpper || (map == CaseMap::kSwap && is_lower(c.value))) {
      append_upper(mapped, c.value);
    } else if (map == CaseMap::kSwap && !is_upper(c.value)) {
      append_code_point(mapped, c.value);
    } else if ((map == CaseMap::kTitle && !in_word) || (map == CaseMap::kCapitalize && i == 0)) {
      append_title(mapped, c.value);
    } else {
      append_lower(mapped, c.value);
    }
    in_word = is_cased(c.value);
    out.append(mapped, is_marked(source, i));
    i += c.size;
  }
  Value result = out.finish();
  result.as_string().markup = source.markup;
  return result;
}

Value split_lines(Heap& heap, const Value& text, bool keep_ends) {
  const std::string_view bytes = bytes_of(text);
  Value result = value_of(make_list(heap));
  size_t begin = 0;
  for (size_t i = 0; i < bytes.size();) {
    const CodePoint c = decode_at(bytes, i);
    size_t next = i + c.size;
    if (!is_line_break(c.value) || !c.well_formed) {
      i = next;
      continue;
    }
    if (c.value == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
    push(heap, result.as_list(), substring(heap, text, begin, keep_ends ? next : i));
    begin = i = next;
  }
  if (begin < bytes.size())
    push(heap, result.as_list(), substring(heap, text, begin, bytes.size()));
  return result;
}

}  // namespace millrace::jinja
