#include "engine/text/jinja_ops.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "engine/text/jinja_print.h"
#include "engine/text/jinja_unicode.h"

namespace millrace::jinja {
namespace {

// Data deeper than this cannot come from a request that was accepted.
constexpr int kMaxDataDepth = 200;
// jinja2's sandbox refuses longer ranges.
constexpr int64_t kMaxRange = 100000;

void check_depth(int depth) {
  if (depth > kMaxDataDepth) fail_limit("a value is nested deeper than 200 levels");
}

void charge(const Object& object, size_t steps) {
  if (object.heap != nullptr) object.heap->step(static_cast<int64_t>(steps));
}

[[noreturn]] void fail_operands(std::string_view op, const Value& a, const Value& b) {
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  fail("unsupported operand types for " + std::string(op) + ": '" + std::string(type_name(a)) +
       "' and '" + std::string(type_name(b)) + "'");
}

bool equal_lists(const ListObject& a, const ListObject& b, int depth) {
  if (&a == &b) return true;
  if (a.flavor != b.flavor || !a.is_sequence() || a.items.size() != b.items.size()) return false;
  charge(a, a.items.size());
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!equal(a.items[i], b.items[i], depth + 1)) return false;
  }
  return true;
}

bool equal_dicts(const DictObject& a, const DictObject& b, int depth) {
  if (&a == &b) return true;
  if (a.entries.size() != b.entries.size()) return false;
  charge(a, a.entries.size());
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(key);
    if (other == nullptr || !equal(value, *other, depth + 1)) return false;
  }
  return true;
}

}  // namespace

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kAbsent:
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return "str";
    case Kind::kDict: return "dict";
    case Kind::kNamespace: return "Namespace";
    case Kind::kCallable: return "function";
    case Kind::kLoop: return "LoopContext";
    case Kind::kList: break;
  }
  switch (value.as_list().flavor) {
    case Flavor::kList: return "list";
    case Flavor::kTuple: return "tuple";
    case Flavor::kRange: return "range";
    case Flavor::kKeys: return "dict_keys";
    case Flavor::kValues: return "dict_values";
    case Flavor::kItems: return "dict_items";
    case Flavor::kGenerator: return "generator";
  }
  return "list";
}

void fail_undefined(const Value& value) {
  if (value.undefined_name() == nullptr) fail("an undefined value is used");
  fail("'" + *value.undefined_name() + "' is undefined");
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kAbsent:
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInt: return value.as_int() != 0;
    case Kind::kFloat: return value.as_double() != 0;
    case Kind::kString: return !value.as_string().bytes.empty();
    case Kind::kList: return !value.as_list().has_length() || !value.as_list().items.empty();
    case Kind::kDict: return !value.as_dict().entries.empty();
    default: return true;
  }
}

bool equal(const Value& a, const Value& b, int depth) {
  check_depth(depth);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString: {
      const std::string_view x = a.as_string().bytes;
      const std::string_view y = b.as_string().bytes;
      if (x.size() != y.size()) return false;
      charge(a.as_string(), x.size() >> 10);
      return x == y;
    }
    case Kind::kList: return equal_lists(a.as_list(), b.as_list(), depth);
    case Kind::kDict: return equal_dicts(a.as_dict(), b.as_dict(), depth);
    default: return a.as_object() == b.as_object();
  }
}

bool less(const Value& a, const Value& b, int depth) {
  check_depth(depth);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int();
    return a.as_double() < b.as_double();
  }
  if (a.is_string() && b.is_string()) {
    // UTF-8 keeps the order of code points.
    charge(a.as_string(), a.as_string().bytes.size() >> 10);
    return a.as_string().bytes < b.as_string().bytes;
  }
  if (a.is(Kind::kList) && b.is(Kind::kList)) {
    const ListObject& x = a.as_list();
    const ListObject& y = b.as_list();
    if (x.flavor == y.flavor && (x.flavor == Flavor::kList || x.flavor == Flavor::kTuple)) {
      charge(x, x.items.size());
      for (size_t i = 0; i < x.items.size() && i < y.items.size(); ++i) {
        if (!equal(x.items[i], y.items[i], depth + 1))
          return less(x.items[i], y.items[i], depth + 1);
      }
      return x.items.size() < y.items.size();
    }
  }
  fail_operands("'<'", a, b);
}

bool compare(Heap& heap, CompareOp op, const Value& a, const Value& b) {
  const bool nan = (a.is(Kind::kFloat) && std::isnan(a.as_double())) ||
                   (b.is(Kind::kFloat) && std::isnan(b.as_double()));
  switch (op) {
    case CompareOp::kEq: return equal(a, b);
    case CompareOp::kNe: return !equal(a, b);
    case CompareOp::kLt: return less(a, b);
    case CompareOp::kGt: return less(b, a);
    case CompareOp::kLe: return !less(b, a) && !nan;
    case CompareOp::kGe: return !less(a, b) && !nan;
    case CompareOp::kIn: return contains(heap, b, a);
    case CompareOp::kNotIn: return !contains(heap, b, a);
  }
  return false;
}

bool contains(Heap& heap, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString: {
      if (!item.is_string()) {
        fail("'in <string>' requires string as left operand, not " + std::string(type_name(item)));
      }
      const std::string_view text = container.as_string().bytes;
      heap.scan(text.size());
      return find_text(text, item.as_string().bytes, 0) != std::string_view::npos;
    }
    case Kind::kDict: return container.as_dict().find(item) != nullptr;
    case Kind::kUndefined: return false;
    case Kind::kList: {
      const Value items = iterate(heap, container);
      for (const Value& candidate : items.as_list().items) {
        if (equal(candidate, item)) return true;
      }
      return false;
    }
    default: fail("argument of type '" + std::string(type_name(container)) + "' is not iterable");
  }
}

size_t hash_text(std::string_view text) { return std::hash<std::string_view>()(text); }

bool is_hashable(const Value& value, int depth) {
  check_depth(depth);
  if (value.is(Kind::kDict)) return false;
  if (!value.is(Kind::kList)) return true;
  const ListObject& list = value.as_list();
  if (list.flavor != Flavor::kTuple) return list.flavor == Flavor::kRange || !list.has_length();
  for (const Value& item : list.items) {
    if (!is_hashable(item, depth + 1)) return false;
  }
  return true;
}

size_t hash_value(const Value& value, int depth) {
  check_depth(depth);
  switch (value.kind()) {
    case Kind::kString: return hash_text(value.as_string().bytes);
    case Kind::kBool:
    case Kind::kInt: return std::hash<int64_t>()(value.as_int());
    case Kind::kFloat: {
      const double d = value.as_double();
      if (d == std::floor(d) && std::abs(d) < 9e18)
        return std::hash<int64_t>()(static_cast<int64_t>(d));
      return std::hash<double>()(d);
    }
    case Kind::kList: {
      if (!is_hashable(value, depth)) break;
      size_t hash = 0x9E3779B97F4A7C15u;
      charge(value.as_list(), value.as_list().items.size());
      if (value.as_list().flavor == Flavor::kTuple) {
        for (const Value& item : value.as_list().items)
          hash = hash * 31 + hash_value(item, depth + 1);
      }
      return hash;
    }
    case Kind::kDict: break;
    case Kind::kUndefined:
    case Kind::kNone: return static_cast<size_t>(value.kind());
    default: return std::hash<const void*>()(value.as_object());
  }
  fail("unhashable type: '" + std::string(type_name(value)) + "'");
}

bool same_key(const Value& a, const Value& b) { return equal(a, b); }

int64_t length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return 0;
    case Kind::kString: return value.as_string().length();
    case Kind::kDict: return static_cast<int64_t>(value.as_dict().entries.size());
    case Kind::kList:
      if (value.as_list().has_length()) return static_cast<int64_t>(value.as_list().items.size());
      [[fallthrough]];
    default: fail("object of type '" + std::string(type_name(value)) + "' has no len()");
  }
}

bool has_length(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is(Kind::kDict) ||
         (value.is(Kind::kList) && value.as_list().has_length());
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is(Kind::kDict) ||
         value.is(Kind::kList) || value.is(Kind::kLoop);
}

Value iterate(Heap& heap, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return value_of(make_list(heap));
    case Kind::kList: {
      heap.step(static_cast<int64_t>(value.as_list().items.size()));
      if (value.as_list().has_length()) return value;
      Value result = value_of(make_list(heap));
      result.as_list().items.swap(value.as_list().items);
      return result;
    }
    case Kind::kDict: {
      Value result = value_of(make_list(heap));
      for (const auto& entry : value.as_dict().entries) push(heap, result.as_list(), entry.first);
      return result;
    }
    case Kind::kString: {
      Value result = value_of(make_list(heap));
      const std::string_view text = value.as_string().bytes;
      for (size_t i = 0; i < text.size();) {
        const size_t size = decode_at(text, i).size;
        push(heap, result.as_list(), substring(heap, value, i, i + size));
        i += size;
      }
      return result;
    }
    default: fail("'" + std::string(type_name(value)) + "' object is not iterable");
  }
}

Value char_at(Heap& heap, const Value& text, int64_t index) {
  const StringObject& string = text.as_string();
  const size_t begin =
      string.is_ascii() ? static_cast<size_t>(index) : offset_of(string.bytes, index);
  if (!string.is_ascii()) heap.scan(begin);
  return substring(heap, text, begin, begin + decode_at(string.bytes, begin).size);
}

Value subscript(Heap& heap, const Value& container, const Value& key) {
  switch (container.kind()) {
    case Kind::kUndefined: fail_undefined(container);
    case Kind::kDict: {
      if (!is_hashable(key)) return Value::absent();
      const Value* found = container.as_dict().find(key);
      return found == nullptr ? Value::absent() : *found;
    }
    case Kind::kString: {
      if (!key.is_integral()) return Value::absent();
      const int64_t length = container.as_string().length();
      const int64_t index = key.as_int() < 0 ? key.as_int() + length : key.as_int();
      if (index < 0 || index >= length) return Value::absent();
      return char_at(heap, container, index);
    }
    case Kind::kList: {
      const ListObject& list = container.as_list();
      if (!list.is_sequence() || !key.is_integral()) return Value::absent();
      const auto length = static_cast<int64_t>(list.items.size());
      const int64_t index = key.as_int() < 0 ? key.as_int() + length : key.as_int();
      if (index < 0 || index >= length) return Value::absent();
      return list.items[static_cast<size_t>(index)];
    }
    default: return Value::absent();
  }
}

namespace {

struct Bounds {
  int64_t start, stop, step, count;
};

// Python's slice.indices().
Bounds resolve_bounds(const Value& start, const Value& stop, const Value& step, int64_t length) {
  const auto bound = [](const Value& v) {
    if (v.is_undefined()) fail_undefined(v);
    if (!v.is_integral()) fail("slice indices must be integers or None");
    return v.as_int();
  };
  Bounds b{0, 0, step.is_none() ? 1 : bound(step), 0};
  if (b.step == 0) fail("slice step cannot be zero");
  b.step = std::clamp(b.step, -length - 1, length + 1);  // the same items, and no overflow below
  const int64_t low = b.step < 0 ? -1 : 0;
  const int64_t high = b.step < 0 ? length - 1 : length;
  const auto clip = [&](const Value& v, int64_t otherwise) {
    if (v.is_none()) return otherwise;
    const int64_t i = bound(v);
    return i < 0 ? std::max(i + length, low) : std::min(i, high);
  };
  b.start = clip(start, b.step < 0 ? high : low);
  b.stop = clip(stop, b.step < 0 ? low : high);
  if (b.step > 0 && b.start < b.stop) b.count = (b.stop - b.start - 1) / b.step + 1;
  if (b.step < 0 && b.stop < b.start) b.count = (b.start - b.stop - 1) / -b.step + 1;
  return b;
}

Value slice_text(Heap& heap, const Value& text, const Bounds& b) {
  const StringObject& source = text.as_string();
  const bool ascii = source.is_ascii();
  if (b.count == 0) return make_string(heap, "");
  if (b.step == 1) {
    const size_t begin = ascii ? static_cast<size_t>(b.start) : offset_of(source.bytes, b.start);
    const size_t end = ascii ? static_cast<size_t>(b.stop)
                             : begin + offset_of(source.bytes.substr(begin), b.stop - b.start);
    if (!ascii) heap.scan(end);
    return substring(heap, text, begin, end);
  }
  std::vector<size_t> offsets;  // of every character
  heap.step(source.length() >> 6);
  for (size_t i = 0; i < source.bytes.size(); i += decode_at(source.bytes, i).size) {
    offsets.push_back(i);
  }
  offsets.push_back(source.bytes.size());
  TextBuilder out(heap);
  for (int64_t n = 0, i = b.start; n < b.count; ++n, i += b.step) {
    out.append(source, offsets[static_cast<size_t>(i)], offsets[static_cast<size_t>(i) + 1]);
  }
  return out.finish();
}

}  // namespace

Value slice(Heap& heap, const Value& value, const Value& start, const Value& stop,
            const Value& step) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_string()) {
    return slice_text(heap, value, resolve_bounds(start, stop, step, value.as_string().length()));
  }
  if (!value.is(Kind::kList) || !value.as_list().is_sequence()) {
    fail("'" + std::string(type_name(value)) + "' object cannot be sliced");
  }
  const ListObject& source = value.as_list();
  const Bounds b = resolve_bounds(start, stop, step, static_cast<int64_t>(source.items.size()));
  Value result = value_of(make_list(heap, source.flavor));
  ListObject& list = result.as_list();
  for (int64_t n = 0, i = b.start; n < b.count; ++n, i += b.step) {
    push(heap, list, source.items[static_cast<size_t>(i)]);
  }
  if (source.flavor == Flavor::kRange) {
    list.start = source.start + b.start * source.step;
    list.stop = source.start + b.stop * source.step;
    list.step = source.step * b.step;
  }
  return result;
}

Value make_range(Heap& heap, int64_t start, int64_t stop, int64_t step) {
  if (step == 0) fail("range() arg 3 must not be zero");
  Value result = value_of(make_list(heap, Flavor::kRange));
  ListObject& list = result.as_list();
  list.start = start;
  list.stop = stop;
  list.step = step;
  const bool some = step > 0 ? start < stop : start > stop;
  if (!some) return result;
  // Unsigned arithmetic: the distance of two int64 always fits.
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                     : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride =
      step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
  const uint64_t count = (distance - 1) / stride + 1;
  if (count > static_cast<uint64_t>(kMaxRange)) {
    fail("range() is limited to " + std::to_string(kMaxRange) + " items");
  }
  heap.step(static_cast<int64_t>(count));
  list.items.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    list.items.push_back(Value::integer(
        static_cast<int64_t>(static_cast<uint64_t>(start) + i * static_cast<uint64_t>(step))));
  }
  return result;
}

int64_t require_int(const Value& value, std::string_view what) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_integral()) {
    fail(std::string(what) + " must be an integer, not '" + std::string(type_name(value)) + "'");
  }
  return value.as_int();
}

}  // namespace millrace::jinja
