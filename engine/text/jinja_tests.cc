// Jinja's tests: what may stand after `is`.
#include <cmath>

#include "engine/text/jinja_builtins.h"
#include "engine/text/jinja_call.h"
#include "engine/text/jinja_interpreter.h"
#include "engine/text/jinja_methods.h"
#include "engine/text/jinja_ops.h"
#include "engine/text/jinja_print.h"

namespace millrace::jinja {
namespace {

template <bool (*kPredicate)(const Value&)>
Value simple(Interpreter&, const Value& value, Arguments& arguments) {
  Parameters(arguments, "test", {});
  return Value::boolean(kPredicate(value));
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined_value(const Value& v) { return v.is_undefined(); }
bool is_none_value(const Value& v) { return v.is_none(); }
bool is_string_value(const Value& v) { return v.is_string(); }
bool is_number_value(const Value& v) { return v.is_number(); }
bool is_integer(const Value& v) { return v.is(Kind::kInt); }
bool is_float(const Value& v) { return v.is(Kind::kFloat); }
bool is_boolean(const Value& v) { return v.is(Kind::kBool); }
bool is_true(const Value& v) { return v.is(Kind::kBool) && v.as_bool(); }
bool is_false(const Value& v) { return v.is(Kind::kBool) && !v.as_bool(); }
bool is_mapping(const Value& v) { return v.is(Kind::kDict); }
bool is_callable(const Value& v) {
  return v.is(Kind::kCallable) || v.is(Kind::kLoop) || v.is_undefined();
}
bool is_escaped(const Value& v) { return v.is_string() && v.as_string().markup; }
// len() and __getitem__ exist, which is also true of a mapping and of undefined.
bool is_sequence(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is(Kind::kDict) ||
         (v.is(Kind::kList) && v.as_list().is_sequence());
}

template <CompareOp kOp>
Value comparison(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "comparison", {"other"}, 1);
  return Value::boolean(compare(interpreter.heap(), kOp, value, p[0]));
}

bool remainder_is(Heap& heap, const Value& value, const Value& divisor, int64_t wanted) {
  return equal(binary(heap, BinaryOp::kMod, value, divisor), Value::integer(wanted));
}

Value test_odd(Interpreter& interpreter, const Value& value, Arguments&) {
  return Value::boolean(remainder_is(interpreter.heap(), value, Value::integer(2), 1));
}

Value test_even(Interpreter& interpreter, const Value& value, Arguments&) {
  return Value::boolean(remainder_is(interpreter.heap(), value, Value::integer(2), 0));
}

Value test_divisibleby(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "divisibleby", {"num"}, 1);
  return Value::boolean(remainder_is(interpreter.heap(), value, p[0], 0));
}

Value test_sameas(Interpreter&, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "sameas", {"other"}, 1);
  if (value.kind() != p[0].kind()) return Value::boolean(false);
  const bool object = value.kind() >= Kind::kString;
  return Value::boolean(object ? value.as_object() == p[0].as_object() ||
                                     (value.is_string() && equal(value, p[0]))
                               : equal(value, p[0]));
}

template <const char* kMethod>
Value case_test(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  Parameters(arguments, kMethod, {});
  Arguments none;
  const Value text = to_str(interpreter.heap(), value);
  interpreter.heap().scan(text.as_string().bytes.size());
  return find_string_method(kMethod)(interpreter, text, none);
}
constexpr char kIsLower[] = "islower";
constexpr char kIsUpper[] = "isupper";

Value test_iterable(Interpreter&, const Value& value, Arguments& arguments) {
  Parameters(arguments, "iterable", {});
  return Value::boolean(is_iterable(value));
}

Value test_filter(Interpreter&, const Value& value, Arguments&) {
  return Value::boolean(value.is_string() && find_filter(value.as_string().bytes) != nullptr);
}

Value test_test(Interpreter&, const Value& value, Arguments&) {
  return Value::boolean(value.is_string() && find_test(value.as_string().bytes) != nullptr);
}

constexpr NamedFunction kTests[] = {
    {"defined", simple<is_defined>},
    {"undefined", simple<is_undefined_value>},
    {"none", simple<is_none_value>},
    {"string", simple<is_string_value>},
    {"number", simple<is_number_value>},
    {"integer", simple<is_integer>},
    {"float", simple<is_float>},
    {"boolean", simple<is_boolean>},
    {"true", simple<is_true>},
    {"false", simple<is_false>},
    {"mapping", simple<is_mapping>},
    {"iterable", test_iterable},
    {"sequence", simple<is_sequence>},
    {"callable", simple<is_callable>},
    {"escaped", simple<is_escaped>},
    {"eq", comparison<CompareOp::kEq>},
    {"==", comparison<CompareOp::kEq>},
    {"equalto", comparison<CompareOp::kEq>},
    {"ne", comparison<CompareOp::kNe>},
    {"!=", comparison<CompareOp::kNe>},
    {"lt", comparison<CompareOp::kLt>},
    {"<", comparison<CompareOp::kLt>},
    {"lessthan", comparison<CompareOp::kLt>},
    {"le", comparison<CompareOp::kLe>},
    {"<=", comparison<CompareOp::kLe>},
    {"gt", comparison<CompareOp::kGt>},
    {">", comparison<CompareOp::kGt>},
    {"greaterthan", comparison<CompareOp::kGt>},
    {"ge", comparison<CompareOp::kGe>},
    {">=", comparison<CompareOp::kGe>},
    {"in", comparison<CompareOp::kIn>},
    {"odd", test_odd},
    {"even", test_even},
    {"divisibleby", test_divisibleby},
    {"sameas", test_sameas},
    {"lower", case_test<kIsLower>},
    {"upper", case_test<kIsUpper>},
    {"filter", test_filter},
    {"test", test_test},
};

}  // namespace

Method find_test(std::string_view name) {
  for (const NamedFunction& entry : kTests) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace millrace::jinja
