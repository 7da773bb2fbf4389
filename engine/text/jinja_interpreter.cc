#include "engine/text/jinja_interpreter.h"

#include <nlohmann/json.hpp>

#include "engine/text/jinja_builtins.h"
#include "engine/text/jinja_print.h"

namespace millrace::jinja {
namespace {

constexpr std::string_view kTokenSuffix = "_token";

const std::string kNoElse = "the value of an inline if without else";

// Data of a request is parsed with its own depth limit; this one only bounds our recursion.
constexpr int kMaxJsonDepth = 512;

Value convert(Heap& heap, const nlohmann::ordered_json& json, bool marked, int depth) {
  if (depth > kMaxJsonDepth) fail_limit("the context is nested deeper than 512 levels");
  heap.step();
  switch (json.type()) {
    case nlohmann::detail::value_t::boolean: return Value::boolean(json.get<bool>());
    case nlohmann::detail::value_t::number_integer: return Value::integer(json.get<int64_t>());
    case nlohmann::detail::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number <= static_cast<uint64_t>(INT64_MAX))
        return Value::integer(static_cast<int64_t>(number));
      return Value::real(static_cast<double>(number));
    }
    case nlohmann::detail::value_t::number_float: return Value::real(json.get<double>());
    case nlohmann::detail::value_t::string:
      return make_string(heap, json.get_ref<const std::string&>(), marked);
    case nlohmann::detail::value_t::array: {
      Value result = value_of(make_list(heap));
      result.as_list().items.reserve(json.size());
      for (const auto& item : json)
        push(heap, result.as_list(), convert(heap, item, marked, depth + 1));
      return result;
    }
    case nlohmann::detail::value_t::object: {
      Value result = value_of(make_dict(heap));
      auto& entries = result.as_dict().entries;  // the keys of a JSON object are distinct
      entries.reserve(json.size());
      for (const auto& [key, value] : json.items()) {
        Value converted = convert(heap, value, marked, depth + 1);
        entries.emplace_back(make_string(heap, key, marked), std::move(converted));
      }
      return result;
    }
    default: return Value();
  }
}

}  // namespace

Value from_json(Heap& heap, const nlohmann::ordered_json& json, bool marked) {
  return convert(heap, json, marked, 0);
}

Interpreter::Interpreter(const Template& tree, Heap& heap, const std::tm* now)
    : tree_(tree), heap_(heap), now_(now) {
  root_.reserve(tree.names.size());
  unbound_.reserve(tree.names.size());
  for (const std::string& name : tree.names) {
    root_.push_back(find_global(name));
    unbound_.push_back(Value::undefined(&name));
  }
}

RenderedText Interpreter::render(const nlohmann::ordered_json& context) {
  TextBuilder out(heap_);
  out_ = &out;
  try {
    for (const auto& [key, value] : context.items()) {
      const auto it = tree_.name_ids.find(key);
      if (it == tree_.name_ids.end()) continue;
      root_[it->second] = from_json(heap_, value, !std::string_view(key).ends_with(kTokenSuffix));
    }
    exec(tree_.body);
  } catch (Failure& failure) {
    if (failure.line == 0) failure.line = line_;
    throw;
  }
  return out.take();
}

std::tm Interpreter::now() const {
  if (now_ != nullptr) return *now_;
  const std::time_t seconds = std::time(nullptr);
  std::tm result{};
  localtime_r(&seconds, &result);
  return result;
}

Value Interpreter::eval(const Expr& expr) {
  const Nested nested(heap_);
  heap_.step();
  line_ = expr.line;
  switch (expr.kind) {
    case ExprKind::kConst: return static_cast<const ConstExpr&>(expr).value;
    case ExprKind::kName: return lookup(static_cast<const NameExpr&>(expr).id);
    case ExprKind::kAttribute: return eval_attribute(static_cast<const AttributeExpr&>(expr));
    case ExprKind::kItem: return eval_item(static_cast<const ItemExpr&>(expr));
    case ExprKind::kSlice: return eval_slice(static_cast<const SliceExpr&>(expr));
    case ExprKind::kCall: return eval_call(static_cast<const CallExpr&>(expr));
    case ExprKind::kFilter:
    case ExprKind::kTest: return eval_filter(static_cast<const FilterExpr&>(expr));
    case ExprKind::kNot:
      return Value::boolean(!truthy(eval(*static_cast<const UnaryExpr&>(expr).operand)));
    case ExprKind::kNegate: return negate(eval(*static_cast<const UnaryExpr&>(expr).operand));
    case ExprKind::kPlus: {
      // +x is x for a number, and fails exactly where -x would.
      Value value = eval(*static_cast<const UnaryExpr&>(expr).operand);
      if (!value.is_number()) negate(value);
      return value.is(Kind::kBool) ? Value::integer(value.as_int()) : value;
    }
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      const auto& node = static_cast<const BinaryExpr&>(expr);
      Value left = eval(*node.left);
      return truthy(left) == (expr.kind == ExprKind::kOr) ? left : eval(*node.right);
    }
    case ExprKind::kBinary: return eval_binary(static_cast<const BinaryExpr&>(expr));
    case ExprKind::kConcat: return eval_concat(static_cast<const SequenceExpr&>(expr));
    case ExprKind::kCompare:
      return Value::boolean(eval_compare(static_cast<const CompareExpr&>(expr)));
    case ExprKind::kConditional: {
      const auto& node = static_cast<const ConditionalExpr&>(expr);
      if (truthy(eval(*node.test))) return eval(*node.yes);
      return node.no == nullptr ? Value::undefined(&kNoElse) : eval(*node.no);
    }
    case ExprKind::kSequence: return eval_sequence(static_cast<const SequenceExpr&>(expr));
    case ExprKind::kDict: return eval_dict(static_cast<const DictExpr&>(expr));
  }
  return Value();
}

Value Interpreter::eval_attribute(const AttributeExpr& expr) {
  return named_attribute(eval(*expr.object), expr.name, expr.methods, &expr.name);
}

Value Interpreter::named_attribute(const Value& object, std::string_view name,
                                   const MethodSet& methods, const std::string* what) {
  if (const Method method = methods.of(object)) {
    return Value::object(Kind::kCallable, heap_.create<CallableObject>("method", method, object));
  }
  Value found = Value::undefined();
  switch (object.kind()) {
    case Kind::kUndefined: fail_undefined(object);
    case Kind::kDict:
    case Kind::kNamespace: {
      const Value* entry = object.as_dict().find(name);
      if (entry != nullptr) return *entry;
      break;
    }
    case Kind::kLoop: found = object.as_loop().attribute(*this, object, name); break;
    case Kind::kCallable: found = object.as_callable().attribute(*this, name); break;
    case Kind::kList: {
      const ListObject& list = object.as_list();
      if (list.group && name == "grouper") return list.items[0];
      if (list.group && name == "list") return list.items[1];
      break;
    }
    default: break;
  }
  return found.is_undefined() ? Value::undefined(what) : found;
}

Value Interpreter::attribute(const Value& object, std::string_view name) {
  return named_attribute(object, name, find_methods(name), nullptr);
}

Value Interpreter::item(const Value& object, const Value& key) {
  Value found = subscript(heap_, object, key);
  if (!found.is(Kind::kAbsent)) return found;
  if (key.is_string() && !object.is(Kind::kDict)) return attribute(object, key.as_string().bytes);
  if (!key.is_string()) return Value::undefined();
  const Method method = find_methods(key.as_string().bytes).of(object);
  if (method == nullptr) return Value::undefined();
  return Value::object(Kind::kCallable, heap_.create<CallableObject>("method", method, object));
}

Value Interpreter::eval_item(const ItemExpr& expr) {
  const Value object = eval(*expr.object);
  const Value key = eval(*expr.key);
  Value found = item(object, key);
  if (found.is_undefined() && found.undefined_name() == nullptr && !expr.name.empty()) {
    return Value::undefined(&expr.name);
  }
  return found;
}

Value Interpreter::eval_slice(const SliceExpr& expr) {
  const Value object = eval(*expr.object);
  const auto bound = [this](const Expr* e) { return e == nullptr ? Value() : eval(*e); };
  const Value start = bound(expr.start);
  const Value stop = bound(expr.stop);
  return slice(heap_, object, start, stop, bound(expr.step));
}

void Interpreter::eval_arguments(const CallArguments& from, Arguments& to) {
  for (const Expr* expr : from.positional) to.positional.push_back(eval(*expr));
  for (const auto& [name, expr] : from.named) to.named.emplace_back(name, eval(*expr));
  if (from.star != nullptr) {
    const Value items = iterate(heap_, eval(*from.star));
    heap_.step(static_cast<int64_t>(items.as_list().items.size()));
    for (const Value& value : items.as_list().items) to.positional.push_back(value);
  }
  if (from.double_star == nullptr) return;
  const Value more = eval(*from.double_star);
  if (!more.is(Kind::kDict)) fail("the argument after ** must be a mapping");
  heap_.step(static_cast<int64_t>(more.as_dict().entries.size()));
  to.keywords = more;
  for (const auto& [key, value] : more.as_dict().entries) {
    if (!key.is_string()) fail("keywords must be strings");
    for (const auto& other : to.named) {
      if (other.first == key.as_string().bytes) {
        fail("the argument '" + std::string(other.first) + "' is given twice");
      }
    }
    to.named.emplace_back(key.as_string().bytes, value);
  }
}

// A text that a built-in function is called on is charged here, once for all of them: most of
// them look at every character.
void Interpreter::charge_subject(const Value& subject) {
  if (subject.is_string()) heap_.scan(subject.as_string().bytes.size());
}

Value Interpreter::eval_call(const CallExpr& expr, const Value* caller) {
  Arguments arguments;
  if (expr.callee->kind == ExprKind::kAttribute) {
    // The common case, a method, without making a bound method first.
    const auto& callee = static_cast<const AttributeExpr&>(*expr.callee);
    const Value object = eval(*callee.object);
    const Method method = callee.methods.of(object);
    const Value function = method != nullptr
                               ? Value()
                               : named_attribute(object, callee.name, callee.methods, &callee.name);
    eval_arguments(expr.arguments, arguments);
    if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
    line_ = expr.line;
    if (method == nullptr) return call(function, arguments);
    charge_subject(object);
    return method(*this, object, arguments);
  }
  const Value callee = eval(*expr.callee);
  eval_arguments(expr.arguments, arguments);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  line_ = expr.line;
  return call(callee, arguments);
}

Value Interpreter::call(const Value& callee, Arguments& arguments) {
  heap_.step();
  switch (callee.kind()) {
    case Kind::kUndefined: fail_undefined(callee);
    case Kind::kCallable:
      charge_subject(callee.as_callable().self);
      return callee.as_callable().call(*this, arguments);
    case Kind::kLoop: return recurse(callee.as_loop(), arguments);
    default: fail("'" + std::string(type_name(callee)) + "' object is not callable");
  }
}

Value Interpreter::eval_filter(const FilterExpr& expr, const Value* input) {
  // In a filter block the innermost filter of the chain has no subject: it gets the block's text.
  Value subject;
  if (expr.subject == nullptr) {
    subject = *input;
  } else if (input != nullptr) {
    subject = eval_filter(static_cast<const FilterExpr&>(*expr.subject), input);
  } else {
    subject = eval(*expr.subject);
  }
  Arguments arguments;
  eval_arguments(expr.arguments, arguments);
  line_ = expr.line;
  if (expr.function == nullptr) {
    fail(std::string("there is no ") + (expr.kind == ExprKind::kTest ? "test" : "filter") +
         " named '" + expr.name + "'");
  }
  if (expr.kind == ExprKind::kFilter) charge_subject(subject);
  return expr.function(*this, subject, arguments);
}

Value Interpreter::apply_filter(std::string_view name, const Value& subject, Arguments& arguments) {
  const Method filter = find_filter(name);
  if (filter == nullptr) fail("there is no filter named '" + std::string(name) + "'");
  heap_.step();
  charge_subject(subject);
  return filter(*this, subject, arguments);
}

bool Interpreter::apply_test(std::string_view name, const Value& subject, Arguments& arguments) {
  const Method test = find_test(name);
  if (test == nullptr) fail("there is no test named '" + std::string(name) + "'");
  heap_.step();
  return test(*this, subject, arguments).as_bool();
}

Value Interpreter::eval_binary(const BinaryExpr& expr) {
  const Value left = eval(*expr.left);
  const Value right = eval(*expr.right);
  line_ = expr.line;
  return binary(heap_, expr.op, left, right);
}

Value Interpreter::eval_concat(const SequenceExpr& expr) {
  TextBuilder out(heap_);
  for (const Expr* item : expr.items) append_str(out, heap_, eval(*item));
  return out.finish();
}

bool Interpreter::eval_compare(const CompareExpr& expr) {
  Value left = eval(*expr.first);
  for (const auto& [op, operand] : expr.rest) {
    Value right = eval(*operand);
    line_ = expr.line;
    if (!compare(heap_, op, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::eval_sequence(const SequenceExpr& expr) {
  Value result = value_of(make_list(heap_, expr.is_tuple ? Flavor::kTuple : Flavor::kList));
  result.as_list().items.reserve(expr.items.size());
  for (const Expr* item : expr.items) push(heap_, result.as_list(), eval(*item));
  return result;
}

Value Interpreter::eval_dict(const DictExpr& expr) {
  Value result = value_of(make_dict(heap_));
  for (const auto& [key_expr, value_expr] : expr.items) {
    const Value key = eval(*key_expr);
    result.as_dict().set(key, eval(*value_expr));
  }
  return result;
}

const Value& Interpreter::lookup(uint32_t id) const {
  const Value* at = &scope_;
  while (!at->is_none()) {
    const auto* scope = static_cast<const Scope*>(at->as_object());
    for (const auto& [name, value] : scope->variables) {
      if (name == id) return value;
    }
    at = &scope->parent;
  }
  return root_[id].is(Kind::kAbsent) ? unbound_[id] : root_[id];
}

void Interpreter::define(uint32_t id, Value value) {
  if (scope_.is_none()) {
    root_[id] = std::move(value);
    return;
  }
  for (auto& [name, old] : scope()->variables) {
    if (name == id) {
      old = std::move(value);
      return;
    }
  }
  scope()->variables.emplace_back(id, std::move(value));
}

}  // namespace millrace::jinja
