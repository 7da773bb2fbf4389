// The global functions: Jinja's own, and those that transformers' renderer adds.
#include <ctime>

#include "engine/text/jinja_builtins.h"
#include "engine/text/jinja_call.h"
#include "engine/text/jinja_interpreter.h"
#include "engine/text/jinja_ops.h"
#include "engine/text/jinja_print.h"

namespace millrace::jinja {
namespace {

Value global_range(Interpreter& interpreter, const Value&, Arguments& arguments) {
  const Parameters p(arguments, "range", {"start", "stop", "step"}, 1);
  const int64_t first = require_int(p[0], "a range bound");
  if (!p.has(1)) return make_range(interpreter.heap(), 0, first, 1);
  return make_range(interpreter.heap(), first, require_int(p[1], "a range bound"),
                    p.has(2) ? require_int(p[2], "the range step") : 1);
}

// What dict() makes of its arguments: a mapping or pairs, then keywords.
Value dict_of(Interpreter& interpreter, const Arguments& arguments) {
  Heap& heap = interpreter.heap();
  Value result = value_of(make_dict(heap));
  DictObject& dict = result.as_dict();
  if (arguments.positional.size() > 1) fail("dict() takes at most one positional argument");
  if (arguments.positional.size() == 1 && arguments.positional[0].is(Kind::kDict)) {
    const auto& entries = arguments.positional[0].as_dict().entries;
    heap.step(static_cast<int64_t>(entries.size()));
    dict.entries = entries;
  } else if (arguments.positional.size() == 1) {
    if (arguments.positional[0].is_undefined()) fail_undefined(arguments.positional[0]);
    const Value pairs = iterate(heap, arguments.positional[0]);
    for (const Value& pair : pairs.as_list().items) {
      const Value parts = iterate(heap, pair);
      heap.step();
      if (parts.as_list().items.size() != 2) fail("dict() needs pairs");
      dict.set(parts.as_list().items[0], parts.as_list().items[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(make_string(heap, name), value);
  return result;
}

Value global_dict(Interpreter& interpreter, const Value&, Arguments& arguments) {
  return dict_of(interpreter, arguments);
}

Value global_namespace(Interpreter& interpreter, const Value&, Arguments& arguments) {
  Value dict = dict_of(interpreter, arguments);
  for (const auto& entry : dict.as_dict().entries) {
    if (entry.first.is_string() && entry.first.as_string().bytes.starts_with("_")) {
      fail("a namespace attribute must not start with an underscore");
    }
  }
  return Value::object(Kind::kNamespace, dict.as_object());
}

Value global_raise_exception(Interpreter& interpreter, const Value&, Arguments& arguments) {
  const Parameters p(arguments, "raise_exception", {"message"}, 1);
  fail(std::string(to_str(interpreter.heap(), p[0]).as_string().bytes));
}

Value global_strftime_now(Interpreter& interpreter, const Value&, Arguments& arguments) {
  const Parameters p(arguments, "strftime_now", {"format"}, 1);
  if (!p[0].is_string()) fail("strftime_now() needs a format string");
  const std::string format(p[0].as_string().bytes);
  if (format.empty()) return p[0];
  const std::tm now = interpreter.now();
  char buffer[1024];
  const size_t size = std::strftime(buffer, sizeof(buffer), format.c_str(), &now);
  if (size == 0) fail("the format of strftime_now() gives no text, or more than 1023 bytes");
  return make_string(interpreter.heap(), std::string_view(buffer, size));
}

struct Cycler : CallableObject {
  Cycler() : CallableObject("cycler", nullptr, Value()) {}
  void clear() override { items.clear(); }
  Value attribute(Interpreter& interpreter, std::string_view attribute_name) override;
  std::vector<Value> items;
  size_t at = 0;
};

Value cycler_next(Interpreter&, const Value& self, Arguments&) {
  auto& cycler = static_cast<Cycler&>(self.as_callable());
  const Value result = cycler.items[cycler.at];
  cycler.at = (cycler.at + 1) % cycler.items.size();
  return result;
}

Value cycler_reset(Interpreter&, const Value& self, Arguments&) {
  static_cast<Cycler&>(self.as_callable()).at = 0;
  return Value();
}

Value Cycler::attribute(Interpreter& interpreter, std::string_view attribute_name) {
  if (attribute_name == "current") return items[at];
  if (attribute_name != "next" && attribute_name != "reset") return Value::undefined();
  const bool is_next = attribute_name == "next";
  return Value::object(Kind::kCallable,
                       interpreter.heap().create<CallableObject>(
                           is_next ? "next" : "reset", is_next ? cycler_next : cycler_reset,
                           Value::object(Kind::kCallable, this)));
}

Value global_cycler(Interpreter& interpreter, const Value&, Arguments& arguments) {
  if (arguments.positional.empty()) fail("cycler() needs at least one item");
  auto* cycler = interpreter.heap().create<Cycler>();
  cycler->items.assign(arguments.positional.begin(), arguments.positional.end());
  return Value::object(Kind::kCallable, cycler);
}

struct Joiner : CallableObject {
  explicit Joiner(Value separator) : CallableObject("joiner", nullptr, std::move(separator)) {}
  Value call(Interpreter& interpreter, Arguments&) override {
    if (used) return self;
    used = true;
    return make_string(interpreter.heap(), "");
  }
  bool used = false;
};

Value global_joiner(Interpreter& interpreter, const Value&, Arguments& arguments) {
  const Parameters p(arguments, "joiner", {"sep"});
  return Value::object(
      Kind::kCallable,
      interpreter.heap().create<Joiner>(p.has(0) ? p[0] : make_string(interpreter.heap(), ", ")));
}

}  // namespace

Value find_global(std::string_view name) {
  // Without a heap: shared by all renders and never changed.
  static CallableObject functions[] = {
      {"range", global_range, Value()},
      {"dict", global_dict, Value()},
      {"namespace", global_namespace, Value()},
      {"raise_exception", global_raise_exception, Value()},
      {"strftime_now", global_strftime_now, Value()},
      {"cycler", global_cycler, Value()},
      {"joiner", global_joiner, Value()},
  };
  for (CallableObject& function : functions) {
    if (function.name == name) return Value::object(Kind::kCallable, &function);
  }
  return Value::absent();
}

}  // namespace millrace::jinja
