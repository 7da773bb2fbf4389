#include "engine/text/jinja_methods.h"

#include "engine/text/jinja_builtins.h"
#include "engine/text/jinja_call.h"
#include "engine/text/jinja_interpreter.h"
#include "engine/text/jinja_ops.h"

namespace millrace::jinja {
namespace {

Value dict_view(Interpreter& interpreter, const Value& self, Flavor flavor) {
  Heap& heap = interpreter.heap();
  Value result = value_of(make_list(heap, flavor));
  for (const auto& [key, value] : self.as_dict().entries) {
    if (flavor == Flavor::kKeys) {
      push(heap, result.as_list(), key);
    } else if (flavor == Flavor::kValues) {
      push(heap, result.as_list(), value);
    } else {
      Value pair = value_of(make_list(heap, Flavor::kTuple));
      push(heap, pair.as_list(), key);
      push(heap, pair.as_list(), value);
      push(heap, result.as_list(), std::move(pair));
    }
  }
  return result;
}

Value dict_items(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  Parameters(arguments, "items", {});
  return dict_view(interpreter, self, Flavor::kItems);
}

Value dict_keys(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  Parameters(arguments, "keys", {});
  return dict_view(interpreter, self, Flavor::kKeys);
}

Value dict_values(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  Parameters(arguments, "values", {});
  return dict_view(interpreter, self, Flavor::kValues);
}

Value dict_get(Interpreter&, const Value& self, Arguments& arguments) {
  if (!arguments.named.empty()) fail("get() takes no keyword arguments");
  const Parameters p(arguments, "get", {"key", "default"}, 1);
  const Value* found = self.as_dict().find(p[0]);
  return found != nullptr ? *found : p[1];
}

Value dict_copy(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  Parameters(arguments, "copy", {});
  Value result = value_of(make_dict(interpreter.heap()));
  interpreter.heap().step(static_cast<int64_t>(self.as_dict().entries.size()));
  result.as_dict().entries = self.as_dict().entries;
  return result;
}

Value list_count(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters p(arguments, "count", {"value"}, 1);
  int64_t count = 0;
  interpreter.heap().step(static_cast<int64_t>(self.as_list().items.size()));
  for (const Value& item : self.as_list().items) count += equal(item, p[0]) ? 1 : 0;
  return Value::integer(count);
}

Value list_index(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters p(arguments, "index", {"value"}, 1);
  const auto& items = self.as_list().items;
  interpreter.heap().step(static_cast<int64_t>(items.size()));
  for (size_t i = 0; i < items.size(); ++i) {
    if (equal(items[i], p[0])) return Value::integer(static_cast<int64_t>(i));
  }
  fail("the value of index() is not in the list");
}

Value list_copy(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  Parameters(arguments, "copy", {});
  Value result = value_of(make_list(interpreter.heap()));
  for (const Value& item : self.as_list().items) push(interpreter.heap(), result.as_list(), item);
  return result;
}

constexpr NamedFunction kDictMethods[] = {
    {"get", dict_get},       {"items", dict_items}, {"keys", dict_keys},
    {"values", dict_values}, {"copy", dict_copy},
};

constexpr NamedFunction kListMethods[] = {
    {"count", list_count},
    {"index", list_index},
    {"copy", list_copy},
};

template <size_t N>
Method find_in(const NamedFunction (&table)[N], std::string_view name) {
  for (const NamedFunction& entry : table) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace

MethodSet find_methods(std::string_view name) {
  return {find_string_method(name), find_in(kListMethods, name), find_in(kDictMethods, name)};
}

}  // namespace millrace::jinja
