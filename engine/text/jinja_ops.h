// Python's operators on Values: truth, equality, order, arithmetic, subscripts, iteration.
// Pure functions of their arguments apart from what they allocate in the heap; a type error is a
// Failure with Python's reason.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/text/jinja_value.h"

namespace millrace::jinja {

enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

std::string_view type_name(const Value& value);  // as Python names it
[[noreturn]] void fail_undefined(const Value& value);

bool truthy(const Value& value);
bool equal(const Value& a, const Value& b, int depth = 0);
bool less(const Value& a, const Value& b, int depth = 0);
bool compare(Heap& heap, CompareOp op, const Value& a, const Value& b);
bool contains(Heap& heap, const Value& container, const Value& item);

size_t hash_text(std::string_view text);
size_t hash_value(const Value& value, int depth = 0);  // refuses unhashable values
bool same_key(const Value& a, const Value& b);
bool is_hashable(const Value& value, int depth = 0);

Value binary(Heap& heap, BinaryOp op, const Value& a, const Value& b);
Value negate(const Value& value);

int64_t length_of(const Value& value);
bool has_length(const Value& value);
bool is_iterable(const Value& value);
// The items of anything iterable, as a list Value; reads a generator to its end.
Value iterate(Heap& heap, const Value& value);
Value char_at(Heap& heap, const Value& text, int64_t index);  // in range, not negative

// container[key] without the attribute fallback; absent when Python would raise LookupError or
// TypeError.
Value subscript(Heap& heap, const Value& container, const Value& key);
// None stands for a bound that is not given.
Value slice(Heap& heap, const Value& value, const Value& start, const Value& stop,
            const Value& step);

Value make_range(Heap& heap, int64_t start, int64_t stop, int64_t step);
int64_t require_int(const Value& value, std::string_view what);

}  // namespace millrace::jinja
