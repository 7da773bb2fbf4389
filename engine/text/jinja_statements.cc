// The statements of the interpreter: output, loops, assignments, macros.
#include <algorithm>
#include <utility>

#include "engine/text/jinja_interpreter.h"
#include "engine/text/jinja_print.h"
#include "engine/text/jinja_scopes.h"

namespace millrace::jinja {
namespace {

// A macro, or the block of a call block, together with the scope that it was defined in.
struct MacroObject : CallableObject {
  MacroObject(const MacroStatement& statement, Value scope)
      : CallableObject(statement.name, nullptr, std::move(scope)), macro(statement) {}
  Value call(Interpreter& interpreter, Arguments& arguments) override {
    // The scope is held here: the macro may rebind its own name while it runs.
    const Value scope = self;
    return interpreter.call_macro(macro, scope, arguments);
  }
  Value attribute(Interpreter& interpreter, std::string_view attribute_name) override {
    if (attribute_name == "name") return make_string(interpreter.heap(), macro.name);
    return Value::undefined();
  }
  const MacroStatement& macro;
};

}  // namespace

Value Interpreter::new_scope(const Value& parent) {
  auto* scope = heap_.create<Scope>();
  Value value = Value::object(Kind::kCallable, scope);
  scope->parent = parent;
  return value;
}

Interpreter::Flow Interpreter::exec(const Body& body) {
  for (const Statement* statement : body) {
    const Flow flow = exec(*statement);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::exec(const Statement& statement) {
  const Nested nested(heap_);
  heap_.step();
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::kText:
      out_->append(static_cast<const TextStatement&>(statement).text);
      break;
    case StatementKind::kPrint:
      append_str(*out_, heap_, eval(*static_cast<const PrintStatement&>(statement).value));
      break;
    case StatementKind::kIf: return exec_if(static_cast<const IfStatement&>(statement));
    case StatementKind::kFor: {
      const auto& loop = static_cast<const ForStatement&>(statement);
      return exec_for(loop, eval(*loop.iterable), 1);
    }
    case StatementKind::kSet: {
      const auto& set = static_cast<const SetStatement&>(statement);
      Value value = eval(*set.value);
      line_ = statement.line;
      assign(*set.target, std::move(value));
      break;
    }
    case StatementKind::kSetBlock:
      exec_set_block(static_cast<const SetBlockStatement&>(statement));
      break;
    case StatementKind::kMacro: {
      const auto& macro = static_cast<const MacroStatement&>(statement);
      define(macro.id, Value::object(Kind::kCallable, heap_.create<MacroObject>(macro, scope_)));
      break;
    }
    case StatementKind::kCallBlock:
      exec_call_block(static_cast<const MacroStatement&>(statement));
      break;
    case StatementKind::kFilterBlock:
      exec_filter_block(static_cast<const FilterBlockStatement&>(statement));
      break;
    case StatementKind::kWith: exec_with(static_cast<const WithStatement&>(statement)); break;
    case StatementKind::kGeneration: {
      const ScopeGuard guard(*this, new_scope(scope_));
      exec(static_cast<const BlockStatement&>(statement).body);
      break;
    }
    case StatementKind::kBreak: return Flow::kBreak;
    case StatementKind::kContinue: return Flow::kContinue;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::exec_if(const IfStatement& statement) {
  for (const auto& [test, body] : statement.branches) {
    if (truthy(eval(*test))) return exec(body);
  }
  return exec(statement.otherwise);
}

bool Interpreter::passes(const ForStatement& loop, const Value& scope, const Value& item) {
  const ScopeGuard guard(*this, new_scope(scope));
  assign(*loop.target, item);
  return truthy(eval(*loop.filter));
}

Interpreter::Flow Interpreter::exec_for(const ForStatement& statement, const Value& iterable,
                                        int depth) {
  auto* loop = heap_.create<LoopObject>();
  const Value loop_value = Value::object(Kind::kLoop, loop);
  loop->statement = &statement;
  loop->scope = scope_;
  loop->source = iterate(heap_, iterable);
  loop->depth = depth;
  Value turn_scope;
  bool completed = false;  // some turn reached its end
  Flow result = Flow::kNormal;
  while (loop->fetch(*this)) {
    heap_.step();
    // A scope that nothing kept (a macro would) serves the next turn too.
    if (!turn_scope.is_none() && turn_scope.as_object()->refs == 1) {
      static_cast<Scope*>(turn_scope.as_object())->variables.clear();
    } else {
      turn_scope = new_scope(loop->scope);
    }
    const ScopeGuard guard(*this, turn_scope);
    if (statement.uses_loop) define(tree_.loop_id, loop_value);
    assign(*statement.target, loop->current);
    const Flow flow = exec(statement.body);
    if (flow == Flow::kBreak) break;
    completed |= flow == Flow::kNormal;
  }
  // As jinja2 does: also when every turn was left by break or continue.
  if (!completed && !statement.otherwise.empty()) {
    const ScopeGuard guard(*this, new_scope(loop->scope));
    result = exec(statement.otherwise);
  }
  return result;
}

Value Interpreter::recurse(LoopObject& loop, Arguments& arguments) {
  if (!loop.statement->recursive) fail("the loop is not marked 'recursive'");
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    fail("a recursive loop is called with one iterable");
  }
  TextBuilder text(heap_);
  const OutputGuard output(*this, text);
  const ScopeGuard guard(*this, loop.scope);
  exec_for(*loop.statement, arguments.positional[0], loop.depth + 1);
  return text.finish();
}

Value Interpreter::capture(const Body& body) {
  TextBuilder text(heap_);
  const OutputGuard output(*this, text);
  const ScopeGuard guard(*this, new_scope(scope_));
  exec(body);
  return text.finish();
}

void Interpreter::exec_set_block(const SetBlockStatement& statement) {
  Value value = capture(statement.body);
  if (statement.filter != nullptr) {
    value = eval_filter(static_cast<const FilterExpr&>(*statement.filter), &value);
  }
  assign(*statement.target, std::move(value));
}

void Interpreter::exec_filter_block(const FilterBlockStatement& statement) {
  const Value text = capture(statement.body);
  append_str(*out_, heap_, eval_filter(static_cast<const FilterExpr&>(*statement.filter), &text));
}

void Interpreter::exec_with(const WithStatement& statement) {
  Values values;  // evaluated outside: one value does not see the names before it
  for (const auto& entry : statement.values) values.push_back(eval(*entry.second));
  const ScopeGuard guard(*this, new_scope(scope_));
  for (size_t i = 0; i < values.size(); ++i) assign(*statement.values[i].first, values[i]);
  exec(statement.body);
}

void Interpreter::exec_call_block(const MacroStatement& statement) {
  const Value caller = Value::object(Kind::kCallable, heap_.create<MacroObject>(statement, scope_));
  append_str(*out_, heap_, eval_call(*statement.call, &caller));
}

Value Interpreter::call_macro(const MacroStatement& macro, const Value& scope,
                              Arguments& arguments) {
  if (calls_ >= heap_.limits().max_depth) {
    fail_limit("macro '" + macro.name + "' is nested deeper than max_depth " +
               std::to_string(heap_.limits().max_depth) + " calls");
  }
  ++calls_;
  const struct Leave {
    int& calls;
    ~Leave() { --calls; }
  } leave{calls_};
  TextBuilder text(heap_);
  const OutputGuard output(*this, text);
  const ScopeGuard guard(*this, new_scope(scope));
  bind_macro(macro, arguments);
  exec(macro.body);
  return text.finish();
}

// Binds arguments as jinja2's Macro.__call__ does: positional, then by name, then defaults, which
// may use the parameters before them.
void Interpreter::bind_macro(const MacroStatement& macro, Arguments& arguments) {
  absl::InlinedVector<bool, 4> used(arguments.named.size(), false);
  const auto take = [&](std::string_view name) -> const Value* {
    for (size_t i = 0; i < arguments.named.size(); ++i) {
      if (arguments.named[i].first == name && !used[i]) {
        used[i] = true;
        return &arguments.named[i].second;
      }
    }
    return nullptr;
  };
  const size_t positional = std::min(arguments.positional.size(), macro.parameters.size());
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& parameter = macro.parameters[i];
    const Value* given = i < positional ? &arguments.positional[i] : take(parameter.name);
    if (given != nullptr) {
      define(parameter.id, *given);
    } else {
      define(parameter.id, parameter.otherwise != nullptr ? eval(*parameter.otherwise)
                                                          : Value::undefined(&parameter.name));
    }
  }
  if (macro.uses_caller && !macro.has_caller_parameter) {
    const Value* given = take("caller");
    define(tree_.caller_id,
           given != nullptr ? *given : Value::undefined(&tree_.names[tree_.caller_id]));
  }
  if (macro.uses_kwargs) {
    Value rest = value_of(make_dict(heap_));
    for (size_t i = 0; i < arguments.named.size(); ++i) {
      if (used[i]) continue;
      rest.as_dict().set(make_string(heap_, arguments.named[i].first), arguments.named[i].second);
    }
    define(tree_.kwargs_id, std::move(rest));
  } else {
    const auto unused = std::find(used.begin(), used.end(), false);
    if (unused != used.end()) {
      fail("macro '" + macro.name + "' takes no keyword argument '" +
           std::string(arguments.named[static_cast<size_t>(unused - used.begin())].first) + "'");
    }
  }
  if (macro.uses_varargs) {
    Value rest = value_of(make_list(heap_, Flavor::kTuple));
    for (size_t i = positional; i < arguments.positional.size(); ++i) {
      push(heap_, rest.as_list(), arguments.positional[i]);
    }
    define(tree_.varargs_id, std::move(rest));
  } else if (arguments.positional.size() > macro.parameters.size()) {
    fail("macro '" + macro.name + "' takes not more than " +
         std::to_string(macro.parameters.size()) + " arguments");
  }
}

void Interpreter::assign(const Target& target, Value value) {
  if (!target.attribute.empty()) return assign_attribute(target, std::move(value));
  if (!target.is_tuple) return define(target.id, std::move(value));
  const Value items = iterate(heap_, value);
  const auto& list = items.as_list().items;
  if (list.size() != target.items.size()) {
    fail("cannot unpack " + std::to_string(list.size()) + " values into " +
         std::to_string(target.items.size()) + " names");
  }
  for (size_t i = 0; i < list.size(); ++i) assign(*target.items[i], list[i]);
}

void Interpreter::assign_attribute(const Target& target, Value value) {
  const Value space = lookup(target.id);
  if (!space.is(Kind::kNamespace)) fail("cannot assign attribute on non-namespace object");
  if (target.attribute[0] == '_') fail("a namespace attribute must not start with an underscore");
  space.as_dict().set(make_string(heap_, target.attribute), std::move(value));
}

}  // namespace millrace::jinja
