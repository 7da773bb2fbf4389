// Interpreter: one render of one Template. Made for a render, used by one thread, then dropped;
// the Template and the heap must outlive it. Throws Failure.
#pragma once

#include <ctime>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/jinja_ast.h"
#include "engine/text/jinja_value.h"

namespace millrace::jinja {

// Names bound inside a loop turn, a macro call or another block; names of the template's outermost
// level live in the interpreter.
struct Scope : Object {
  void clear() override {
    variables.clear();
    parent = Value();
  }
  absl::InlinedVector<std::pair<uint32_t, Value>, 4> variables;
  Value parent;  // a Scope, or None at the outermost level
};

class Interpreter {
 public:
  // `now` is what strftime_now formats; null is the local time.
  Interpreter(const Template& tree, Heap& heap, const std::tm* now = nullptr);

  // Strings of `context` are user text unless they stand under a member named *_token.
  RenderedText render(const nlohmann::ordered_json& context);

  Heap& heap() { return heap_; }
  std::tm now() const;

  Value call(const Value& callee, Arguments& arguments);
  // object.name and object[key] with Jinja's fallbacks: what is missing is undefined.
  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& key);
  void charge_subject(const Value& subject);
  Value apply_filter(std::string_view name, const Value& subject, Arguments& arguments);
  bool apply_test(std::string_view name, const Value& subject, Arguments& arguments);

  // The body of a macro or call block that was defined in `scope`.
  Value call_macro(const MacroStatement& macro, const Value& scope, Arguments& arguments);
  // Whether the loop's own condition holds for `item`.
  bool passes(const ForStatement& loop, const Value& scope, const Value& item);
  Value recurse(LoopObject& loop, Arguments& arguments);

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  Value eval(const Expr& expr);
  Value eval_attribute(const AttributeExpr& expr);
  Value eval_item(const ItemExpr& expr);
  Value eval_slice(const SliceExpr& expr);
  Value eval_call(const CallExpr& expr, const Value* caller = nullptr);
  Value eval_filter(const FilterExpr& expr, const Value* input = nullptr);
  Value eval_binary(const BinaryExpr& expr);
  Value eval_concat(const SequenceExpr& expr);
  bool eval_compare(const CompareExpr& expr);
  Value eval_sequence(const SequenceExpr& expr);
  Value eval_dict(const DictExpr& expr);
  void eval_arguments(const CallArguments& from, Arguments& to);
  Value named_attribute(const Value& object, std::string_view name, const MethodSet& methods,
                        const std::string* what);

  Flow exec(const Body& body);
  Flow exec(const Statement& statement);
  Flow exec_if(const IfStatement& statement);
  Flow exec_for(const ForStatement& statement, const Value& iterable, int depth);
  void exec_set_block(const SetBlockStatement& statement);
  void exec_filter_block(const FilterBlockStatement& statement);
  void exec_with(const WithStatement& statement);
  void exec_call_block(const MacroStatement& statement);
  Value capture(const Body& body);  // in a new scope
  void bind_macro(const MacroStatement& macro, Arguments& arguments);

  const Value& lookup(uint32_t id) const;
  void define(uint32_t id, Value value);
  void assign(const Target& target, Value value);
  void assign_attribute(const Target& target, Value value);
  Value new_scope(const Value& parent);
  Scope* scope() const { return static_cast<Scope*>(scope_.as_object()); }

  class ScopeGuard;
  class OutputGuard;

  const Template& tree_;
  Heap& heap_;
  const std::tm* now_;
  std::vector<Value> root_;     // by name id; absent where unbound
  std::vector<Value> unbound_;  // by name id: the undefined value of that name
  Value scope_;                 // a Scope, or None at the outermost level
  TextBuilder* out_ = nullptr;
  int line_ = 0;
  int calls_ = 0;
};

// The `loop` variable: a cursor over the items that pass the loop's condition.
struct LoopObject : Object {
  void clear() override {
    source = scope = previous = current = last_changed = Value();
    ahead.clear();
  }
  bool fetch(Interpreter& interpreter);  // makes the next item current; false at the end
  bool look_ahead(Interpreter& interpreter);
  int64_t length(Interpreter& interpreter);
  Value attribute(Interpreter& interpreter, const Value& self, std::string_view name);

  const ForStatement* statement = nullptr;
  Value scope;               // around the loop
  Value source;              // list
  size_t cursor = 0;         // of source
  std::vector<Value> ahead;  // fetched but not yet current; at most one unless length was asked
  size_t ahead_begin = 0;
  int64_t index = 0;  // of current, from 1
  int depth = 1;
  Value previous = Value::undefined();
  Value current = Value::undefined();
  Value last_changed = Value::absent();
};

inline LoopObject& Value::as_loop() const { return *static_cast<LoopObject*>(bits_.o); }

// JSON as a Value; strings and keys are marked as user text when `marked`.
Value from_json(Heap& heap, const nlohmann::ordered_json& json, bool marked);

}  // namespace millrace::jinja
