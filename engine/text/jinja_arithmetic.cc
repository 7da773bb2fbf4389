// The arithmetic operators of jinja_ops.h, on integers of 64 bits: a result that does not fit is
// an error, where Python would go on with a longer integer.
#include <cmath>

#include "engine/text/jinja_format.h"
#include "engine/text/jinja_ops.h"
#include "engine/text/jinja_print.h"

namespace millrace::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void fail_overflow() { fail("integer result does not fit into 64 bits"); }

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == -1) {
    int64_t result;
    if (__builtin_sub_overflow(int64_t{0}, a, &result)) fail_overflow();
    return result;
  }
  const int64_t quotient = a / b;
  return quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

int64_t floor_modulo(int64_t a, int64_t b) {
  if (b == -1) return 0;
  const int64_t remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

double float_modulo(double a, double b) {
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  return remainder == 0 ? std::copysign(0.0, b) : remainder;
}

Value int_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail("0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return Value::integer(result);
}

Value integer_binary(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &result)) fail_overflow();
      return Value::integer(result);
    case BinaryOp::kSub:
      if (__builtin_sub_overflow(a, b, &result)) fail_overflow();
      return Value::integer(result);
    case BinaryOp::kMul:
      if (__builtin_mul_overflow(a, b, &result)) fail_overflow();
      return Value::integer(result);
    case BinaryOp::kPow: return int_power(a, b);
    default: break;
  }
  if (b == 0) fail("division by zero");
  if (op == BinaryOp::kDiv) return Value::real(static_cast<double>(a) / static_cast<double>(b));
  return Value::integer(op == BinaryOp::kMod ? floor_modulo(a, b) : floor_divide(a, b));
}

Value float_binary(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd: return Value::real(a + b);
    case BinaryOp::kSub: return Value::real(a - b);
    case BinaryOp::kMul: return Value::real(a * b);
    case BinaryOp::kPow: {
      if (a == 0 && b < 0) fail("0 cannot be raised to a negative power");
      if (a < 0 && b != std::floor(b)) fail("the power of a negative number is not real");
      const double result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) fail("result too large");
      return Value::real(result);
    }
    default: break;
  }
  if (b == 0) fail("division by zero");
  if (op == BinaryOp::kDiv) return Value::real(a / b);
  if (op == BinaryOp::kMod) return Value::real(float_modulo(a, b));
  return Value::real(std::floor((a - float_modulo(a, b)) / b + 0.5));
}

Value repeat(Heap& heap, const Value& value, int64_t count) {
  count = std::max<int64_t>(count, 0);
  if (value.is_string()) {
    const StringObject& text = value.as_string();
    const auto size = static_cast<int64_t>(text.bytes.size());
    int64_t total = 0;
    if (__builtin_mul_overflow(size, count, &total)) total = INT64_MAX;
    TextBuilder out(heap);
    if (total == 0) return out.finish();
    out.reserve(total);
    heap.step(count >> 6);
    for (int64_t i = 0; i < count; ++i) out.append(text);
    return out.finish();
  }
  const ListObject& list = value.as_list();
  Value result = value_of(make_list(heap, list.flavor));
  if (list.items.empty()) return result;
  for (int64_t i = 0; i < count; ++i) {
    for (const Value& item : list.items) push(heap, result.as_list(), item);
  }
  return result;
}

bool is_repeatable(const Value& value) {
  return value.is_string() || (value.is(Kind::kList) && (value.as_list().flavor == Flavor::kList ||
                                                         value.as_list().flavor == Flavor::kTuple));
}

Value add_texts(Heap& heap, const Value& a, const Value& b) {
  const StringObject& x = a.as_string();
  const StringObject& y = b.as_string();
  TextBuilder out(heap);
  out.reserve(static_cast<int64_t>(x.bytes.size() + y.bytes.size()));
  if (!x.markup && !y.markup) {
    out.append(x);
    out.append(y);
    return out.finish();
  }
  // Text marked safe is HTML to Python: what is added to it gets escaped.
  x.markup ? out.append(x) : append_escaped(out, x);
  y.markup ? out.append(y) : append_escaped(out, y);
  Value result = out.finish();
  result.as_string().markup = true;
  return result;
}

}  // namespace

Value binary(Heap& heap, BinaryOp op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return integer_binary(op, a.as_int(), b.as_int());
    return float_binary(op, a.as_double(), b.as_double());
  }
  if (op == BinaryOp::kAdd) {
    if (a.is_string() && b.is_string()) return add_texts(heap, a, b);
    if (is_repeatable(a) && is_repeatable(b) && !a.is_string() && !b.is_string() &&
        a.as_list().flavor == b.as_list().flavor) {
      Value result = value_of(make_list(heap, a.as_list().flavor));
      for (const Value& item : a.as_list().items) push(heap, result.as_list(), item);
      for (const Value& item : b.as_list().items) push(heap, result.as_list(), item);
      return result;
    }
  }
  if (op == BinaryOp::kMul) {
    if (is_repeatable(a) && b.is_integral()) return repeat(heap, a, b.as_int());
    if (is_repeatable(b) && a.is_integral()) return repeat(heap, b, a.as_int());
  }
  if (op == BinaryOp::kMod && a.is_string()) return percent_format(heap, a.as_string(), b);
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  fail("unsupported operand types for '" + std::string(kSymbols[static_cast<int>(op)]) + "': '" +
       std::string(type_name(a)) + "' and '" + std::string(type_name(b)) + "'");
}

Value negate(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is(Kind::kFloat)) return Value::real(-value.as_double());
  if (!value.is_integral())
    fail("bad operand type for unary -: '" + std::string(type_name(value)) + "'");
  int64_t result = 0;
  if (__builtin_sub_overflow(int64_t{0}, value.as_int(), &result)) fail_overflow();
  return Value::integer(result);
}

}  // namespace millrace::jinja
