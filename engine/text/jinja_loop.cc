// The `loop` variable of a for statement.
#include "engine/text/jinja_call.h"
#include "engine/text/jinja_interpreter.h"

namespace millrace::jinja {
namespace {

Value loop_cycle(Interpreter&, const Value& self, Arguments& arguments) {
  if (arguments.positional.empty()) fail("no items for cycling given");
  const auto count = static_cast<int64_t>(arguments.positional.size());
  return arguments.positional[static_cast<size_t>((self.as_loop().index - 1) % count)];
}

Value loop_changed(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  Value seen = value_of(make_list(interpreter.heap(), Flavor::kTuple));
  for (const Value& value : arguments.positional) push(interpreter.heap(), seen.as_list(), value);
  LoopObject& loop = self.as_loop();
  if (!loop.last_changed.is(Kind::kAbsent) && equal(loop.last_changed, seen)) {
    return Value::boolean(false);
  }
  loop.last_changed = std::move(seen);
  return Value::boolean(true);
}

}  // namespace

bool LoopObject::look_ahead(Interpreter& interpreter) {
  if (ahead_begin < ahead.size()) return true;
  ahead.clear();
  ahead_begin = 0;
  const auto& items = source.as_list().items;
  while (cursor < items.size()) {
    const Value candidate = items[cursor++];
    if (statement->filter == nullptr || interpreter.passes(*statement, scope, candidate)) {
      ahead.push_back(candidate);
      return true;
    }
  }
  return false;
}

bool LoopObject::fetch(Interpreter& interpreter) {
  if (!look_ahead(interpreter)) return false;
  previous = std::move(current);
  current = std::move(ahead[ahead_begin++]);
  ++index;
  return true;
}

int64_t LoopObject::length(Interpreter& interpreter) {
  const auto& items = source.as_list().items;
  if (statement->filter == nullptr) return static_cast<int64_t>(items.size());
  while (cursor < items.size()) {
    const Value candidate = items[cursor++];
    if (interpreter.passes(*statement, scope, candidate)) ahead.push_back(candidate);
  }
  return index + static_cast<int64_t>(ahead.size() - ahead_begin);
}

Value LoopObject::attribute(Interpreter& interpreter, const Value& self, std::string_view name) {
  if (name == "index") return Value::integer(index);
  if (name == "index0") return Value::integer(index - 1);
  if (name == "first") return Value::boolean(index == 1);
  if (name == "last") return Value::boolean(!look_ahead(interpreter));
  if (name == "length") return Value::integer(length(interpreter));
  if (name == "revindex") return Value::integer(length(interpreter) - index + 1);
  if (name == "revindex0") return Value::integer(length(interpreter) - index);
  if (name == "depth") return Value::integer(depth);
  if (name == "depth0") return Value::integer(depth - 1);
  if (name == "previtem") return previous;
  if (name == "nextitem") return look_ahead(interpreter) ? ahead[ahead_begin] : Value::undefined();
  if (name == "cycle" || name == "changed") {
    const Method method = name == "cycle" ? loop_cycle : loop_changed;
    return Value::object(Kind::kCallable, interpreter.heap().create<CallableObject>(
                                              name == "cycle" ? "cycle" : "changed", method, self));
  }
  return Value::undefined();
}

}  // namespace millrace::jinja
