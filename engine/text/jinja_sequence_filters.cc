// Filters that work on sequences and mappings.
#include <algorithm>

#include "engine/text/jinja_builtins.h"
#include "engine/text/jinja_call.h"
#include "engine/text/jinja_interpreter.h"
#include "engine/text/jinja_methods.h"
#include "engine/text/jinja_ops.h"
#include "engine/text/jinja_print.h"

namespace millrace::jinja {
namespace {

const std::string kFirstItem = "the first item of an empty sequence";
const std::string kLastItem = "the last item of an empty sequence";
const std::string kExtreme = "the extreme of an empty sequence";

// An attribute path of a filter argument: "a.b", "a.0" or an integer, as item lookups.
class Getter {
 public:
  Getter(Heap& heap, const Value& path) {
    if (path.is_none()) return;
    if (!path.is_string()) {
      steps_.push_back(path);
      return;
    }
    const std::string_view text = path.as_string().bytes;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find('.', begin), text.size());
      const std::string_view part = text.substr(begin, end - begin);
      const bool number = !part.empty() && part.size() < 10 &&
                          part.find_first_not_of("0123456789") == std::string_view::npos;
      steps_.push_back(number ? Value::integer(std::stoll(std::string(part)))
                              : make_string(heap, part));
      begin = end + 1;
    }
  }

  Value get(Interpreter& interpreter, const Value& from, const Value* otherwise = nullptr) const {
    Value value = from;
    for (const Value& step : steps_) {
      value = interpreter.item(value, step);
      if (value.is_undefined() && otherwise != nullptr && !otherwise->is_none()) value = *otherwise;
    }
    return value;
  }

 private:
  Values steps_;
};

// What values are compared by: texts without case unless asked otherwise.
Value fold_case(Heap& heap, Value value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  return map_case(heap, value, CaseMap::kLower);
}

using Keyed = std::vector<std::pair<Value, Value>>;  // sort key, item

// A stable sort that counts its comparisons.
void sort_keyed(Heap& heap, Keyed& items, bool reverse) {
  std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
    heap.step();
    return reverse ? less(b.first, a.first) : less(a.first, b.first);
  });
}

Value list_of(Heap& heap, const Keyed& items) {
  Value result = value_of(make_list(heap));
  for (const auto& item : items) push(heap, result.as_list(), item.second);
  return result;
}

Value filter_length(Interpreter&, const Value& value, Arguments& arguments) {
  Parameters(arguments, "length", {});
  return Value::integer(length_of(value));
}

Value filter_list(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  Parameters(arguments, "list", {});
  const Value items = iterate(interpreter.heap(), value);
  Value result = value_of(make_list(interpreter.heap()));
  for (const Value& item : items.as_list().items) push(interpreter.heap(), result.as_list(), item);
  return result;
}

Value filter_first(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  Parameters(arguments, "first", {});
  if (value.is(Kind::kList) && !value.as_list().has_length()) {
    // Takes one item; the rest of a generator stays for the next reader.
    auto& items = value.as_list().items;
    if (items.empty()) return Value::undefined(&kFirstItem);
    const Value result = items.front();
    interpreter.heap().step(static_cast<int64_t>(items.size()));
    items.erase(items.begin());
    return result;
  }
  if (value.is_string() && !value.as_string().bytes.empty())
    return char_at(interpreter.heap(), value, 0);
  const Value items = value.is(Kind::kList) ? value : iterate(interpreter.heap(), value);
  return items.as_list().items.empty() ? Value::undefined(&kFirstItem)
                                       : items.as_list().items.front();
}

Value filter_last(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  Parameters(arguments, "last", {});
  if (value.is_string() && value.as_string().length() > 0) {
    return char_at(interpreter.heap(), value, value.as_string().length() - 1);
  }
  if (!has_length(value)) fail("'" + std::string(type_name(value)) + "' object is not reversible");
  const Value items = value.is(Kind::kList) ? value : iterate(interpreter.heap(), value);
  return items.as_list().items.empty() ? Value::undefined(&kLastItem)
                                       : items.as_list().items.back();
}

Value filter_join(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "join", {"d", "attribute"});
  Heap& heap = interpreter.heap();
  const Value separator = p.has(0) ? to_str(heap, p[0]) : make_string(heap, "");
  const Getter getter(heap, p[1]);
  const Value items = iterate(heap, value);
  TextBuilder out(heap);
  bool first = true;
  for (const Value& item : items.as_list().items) {
    if (!first) out.append(separator.as_string());
    first = false;
    append_str(out, heap, getter.get(interpreter, item));
  }
  return out.finish();
}

Value filter_reverse(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  Parameters(arguments, "reverse", {});
  Heap& heap = interpreter.heap();
  if (value.is_string()) return slice(heap, value, Value(), Value(), Value::integer(-1));
  const Value items = iterate(heap, value);
  Value result = value_of(make_list(heap, value.is(Kind::kList) && !value.as_list().has_length()
                                              ? Flavor::kList
                                              : Flavor::kGenerator));
  for (size_t i = items.as_list().items.size(); i > 0; --i)
    push(heap, result.as_list(), items.as_list().items[i - 1]);
  return result;
}

Value filter_sort(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  Heap& heap = interpreter.heap();
  std::vector<Getter> getters;
  if (p[2].is_string()) {
    const std::string_view paths = p[2].as_string().bytes;
    for (size_t begin = 0; begin <= paths.size();) {
      const size_t end = std::min(paths.find(',', begin), paths.size());
      getters.emplace_back(heap, make_string(heap, paths.substr(begin, end - begin)));
      begin = end + 1;
    }
  } else {
    getters.emplace_back(heap, p[2]);
  }
  const Value items = iterate(heap, value);
  Keyed keyed;
  for (const Value& item : items.as_list().items) {
    heap.step();
    Value key = value_of(make_list(heap));
    for (const Getter& getter : getters) {
      push(heap, key.as_list(), fold_case(heap, getter.get(interpreter, item), truthy(p[1])));
    }
    keyed.emplace_back(getters.size() == 1 ? key.as_list().items[0] : key, item);
  }
  sort_keyed(heap, keyed, truthy(p[0]));
  return list_of(heap, keyed);
}

Value filter_dictsort(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  Heap& heap = interpreter.heap();
  const std::string_view by = p[1].is_string() ? p[1].as_string().bytes : "key";
  if (by != "key" && by != "value") fail("dictsort sorts by 'key' or 'value'");
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is(Kind::kDict))
    fail("dictsort needs a mapping, not " + std::string(type_name(value)));
  Keyed keyed;
  for (const auto& [key, entry] : value.as_dict().entries) {
    Value pair = value_of(make_list(heap, Flavor::kTuple));
    push(heap, pair.as_list(), key);
    push(heap, pair.as_list(), entry);
    keyed.emplace_back(fold_case(heap, by == "key" ? key : entry, truthy(p[0])), std::move(pair));
  }
  sort_keyed(heap, keyed, truthy(p[2]));
  return list_of(heap, keyed);
}

Value filter_items(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  Parameters(arguments, "items", {});
  Value result = value_of(make_list(interpreter.heap(), Flavor::kGenerator));
  if (value.is_undefined()) return result;
  if (!value.is(Kind::kDict)) fail("items needs a mapping, not " + std::string(type_name(value)));
  Arguments none;
  const Value view = find_methods("items").for_dict(interpreter, value, none);
  result.as_list().items = view.as_list().items;
  return result;
}

Value filter_unique(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "unique", {"case_sensitive", "attribute"});
  Heap& heap = interpreter.heap();
  const Getter getter(heap, p[1]);
  const Value items = iterate(heap, value);
  const Value seen = value_of(make_dict(heap));
  Value result = value_of(make_list(heap, Flavor::kGenerator));
  for (const Value& item : items.as_list().items) {
    const Value key = fold_case(heap, getter.get(interpreter, item), truthy(p[0]));
    if (seen.as_dict().find(key) != nullptr) continue;
    seen.as_dict().set(key, Value());
    push(heap, result.as_list(), item);
  }
  return result;
}

template <bool kMax>
Value filter_extreme(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, kMax ? "max" : "min", {"case_sensitive", "attribute"});
  Heap& heap = interpreter.heap();
  const Getter getter(heap, p[1]);
  const Value items = iterate(heap, value);
  Value best = Value::undefined(&kExtreme);
  Value best_key;
  bool first = true;
  for (const Value& item : items.as_list().items) {
    heap.step();
    Value key = fold_case(heap, getter.get(interpreter, item), truthy(p[0]));
    if (!first && !(kMax ? less(best_key, key) : less(key, best_key))) continue;
    first = false;
    best = item;
    best_key = std::move(key);
  }
  return best;
}

Value filter_sum(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "sum", {"attribute", "start"});
  const Getter getter(interpreter.heap(), p[0]);
  Value total = p.has(1) ? p[1] : Value::integer(0);
  if (total.is_string()) fail("sum() can't sum strings");
  const Value items = iterate(interpreter.heap(), value);
  for (const Value& item : items.as_list().items) {
    total = binary(interpreter.heap(), BinaryOp::kAdd, total, getter.get(interpreter, item));
  }
  return total;
}

// map and select take anything false for an empty sequence, also None.
Value iterate_or_empty(Heap& heap, const Value& value) {
  return truthy(value) ? iterate(heap, value) : value_of(make_list(heap));
}

// The leading name argument of map and select, and the arguments after it.
std::string take_name(Arguments& arguments, std::string_view filter) {
  if (arguments.positional.empty() || !arguments.positional[0].is_string()) {
    fail(std::string(filter) + " needs the name of a filter or test");
  }
  std::string name(arguments.positional[0].as_string().bytes);
  arguments.positional.erase(arguments.positional.begin());
  return name;
}

Value filter_map(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  Heap& heap = interpreter.heap();
  Value result = value_of(make_list(heap, Flavor::kGenerator));
  const bool by_attribute = arguments.positional.empty();
  if (by_attribute) {
    const Parameters p(arguments, "map", {"attribute", "default"}, 1);
    const Getter getter(heap, p[0]);
    const Value items = iterate_or_empty(heap, value);
    for (const Value& item : items.as_list().items) {
      push(heap, result.as_list(), getter.get(interpreter, item, p.has(1) ? &p[1] : nullptr));
    }
    return result;
  }
  const std::string name = take_name(arguments, "map");
  if (find_filter(name) == nullptr) fail("there is no filter named '" + name + "'");
  const Value items = iterate_or_empty(heap, value);
  for (const Value& item : items.as_list().items) {
    Arguments copy = arguments;
    push(heap, result.as_list(), interpreter.apply_filter(name, item, copy));
  }
  return result;
}

template <bool kKeep, bool kAttribute>
Value filter_select(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  Heap& heap = interpreter.heap();
  Value path;
  if (kAttribute) {
    if (arguments.positional.empty()) fail("the attribute to select by is missing");
    path = arguments.positional[0];
    arguments.positional.erase(arguments.positional.begin());
  }
  const Getter getter(heap, path);
  const bool has_test = !arguments.positional.empty();
  const std::string test = has_test ? take_name(arguments, "select") : "";
  if (has_test && find_test(test) == nullptr) fail("there is no test named '" + test + "'");
  const Value items = iterate_or_empty(heap, value);
  Value result = value_of(make_list(heap, Flavor::kGenerator));
  for (const Value& item : items.as_list().items) {
    const Value subject = getter.get(interpreter, item);
    Arguments copy = arguments;
    const bool holds = has_test ? interpreter.apply_test(test, subject, copy) : truthy(subject);
    if (holds == kKeep) push(heap, result.as_list(), item);
  }
  return result;
}

Value filter_groupby(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  Heap& heap = interpreter.heap();
  const Getter getter(heap, p[0]);
  const Value items = iterate(heap, value);
  Keyed keyed;
  for (const Value& item : items.as_list().items) {
    heap.step();
    keyed.emplace_back(
        fold_case(heap, getter.get(interpreter, item, p.has(1) ? &p[1] : nullptr), truthy(p[2])),
        item);
  }
  sort_keyed(heap, keyed, false);
  Value result = value_of(make_list(heap));
  for (size_t i = 0; i < keyed.size();) {
    Value members = value_of(make_list(heap));
    size_t end = i;
    while (end < keyed.size() && equal(keyed[end].first, keyed[i].first))
      push(heap, members.as_list(), keyed[end++].second);
    Value group = value_of(make_list(heap, Flavor::kTuple));
    group.as_list().group = true;
    // The name of a group keeps the case of its first member.
    push(heap, group.as_list(),
         getter.get(interpreter, keyed[i].second, p.has(1) ? &p[1] : nullptr));
    push(heap, group.as_list(), std::move(members));
    push(heap, result.as_list(), std::move(group));
    i = end;
  }
  return result;
}

Value filter_batch(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "batch", {"linecount", "fill_with"}, 1);
  Heap& heap = interpreter.heap();
  const int64_t size = require_int(p[0], "linecount");
  const Value items = iterate(heap, value);
  Value result = value_of(make_list(heap, Flavor::kGenerator));
  Value line = value_of(make_list(heap));
  for (const Value& item : items.as_list().items) {
    if (static_cast<int64_t>(line.as_list().items.size()) == size) {
      push(heap, result.as_list(), std::move(line));
      line = value_of(make_list(heap));
    }
    push(heap, line.as_list(), item);
  }
  if (line.as_list().items.empty()) return result;
  while (!p[1].is_none() && static_cast<int64_t>(line.as_list().items.size()) < size)
    push(heap, line.as_list(), p[1]);
  push(heap, result.as_list(), std::move(line));
  return result;
}

Value filter_slice(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "slice", {"slices", "fill_with"}, 1);
  Heap& heap = interpreter.heap();
  const int64_t slices = require_int(p[0], "slices");
  if (slices == 0) fail("division by zero");
  const Value items = iterate(heap, value);
  const auto& list = items.as_list().items;
  const auto length = static_cast<int64_t>(list.size());
  Value result = value_of(make_list(heap, Flavor::kGenerator));
  int64_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    Value part = value_of(make_list(heap));
    const bool longer = i < length % slices;
    for (int64_t n = length / slices + (longer ? 1 : 0); n > 0; --n)
      push(heap, part.as_list(), list[static_cast<size_t>(at++)]);
    if (!p[1].is_none() && !longer) push(heap, part.as_list(), p[1]);
    push(heap, result.as_list(), std::move(part));
  }
  return result;
}

Value filter_attr(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Parameters p(arguments, "attr", {"name"}, 1);
  if (value.is_undefined()) fail_undefined(value);
  // Attributes only: the members of a mapping are items.
  if (value.is(Kind::kDict) &&
      find_methods(to_str(interpreter.heap(), p[0]).as_string().bytes).for_dict == nullptr) {
    return Value::undefined();
  }
  return interpreter.attribute(value, to_str(interpreter.heap(), p[0]).as_string().bytes);
}

constexpr NamedFunction kSequenceFilters[] = {
    {"length", filter_length},
    {"count", filter_length},
    {"list", filter_list},
    {"first", filter_first},
    {"last", filter_last},
    {"join", filter_join},
    {"reverse", filter_reverse},
    {"sort", filter_sort},
    {"dictsort", filter_dictsort},
    {"items", filter_items},
    {"unique", filter_unique},
    {"min", filter_extreme<false>},
    {"max", filter_extreme<true>},
    {"sum", filter_sum},
    {"map", filter_map},
    {"select", filter_select<true, false>},
    {"reject", filter_select<false, false>},
    {"selectattr", filter_select<true, true>},
    {"rejectattr", filter_select<false, true>},
    {"groupby", filter_groupby},
    {"batch", filter_batch},
    {"slice", filter_slice},
    {"attr", filter_attr},
};

}  // namespace

Method find_sequence_filter(std::string_view name) {
  for (const NamedFunction& entry : kSequenceFilters) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace millrace::jinja
