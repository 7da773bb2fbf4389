#include "engine/text/jinja_value.h"

#include <algorithm>
#include <utility>

#include "engine/text/jinja_ops.h"
#include "engine/text/jinja_unicode.h"

namespace millrace::jinja {
namespace {

// A dict is searched linearly up to this many entries.
constexpr size_t kLinearEntries = 8;
// Live texts may together take this many times the longest text: a template holds several copies
// of a conversation while it splits and joins it.
constexpr int64_t kLiveFactor = 8;
// Evaluation recurses through several nodes for each call that a template author would count.
constexpr int64_t kNestingFactor = 8;

}  // namespace

Heap::Heap(const RenderLimits& limits)
    : limits_(limits),
      max_nesting_(kNestingFactor * limits.max_depth),
      max_live_bytes_(kLiveFactor * limits.max_output_bytes + (64 << 20)) {}

Heap::~Heap() {
  // Pin everything, cut every reference, then free: no object is touched after it is gone.
  for (Object* o = first_; o != nullptr; o = o->next) ++o->refs;
  for (Object* o = first_; o != nullptr; o = o->next) o->clear();
  while (first_ != nullptr) {
    Object* o = first_;
    first_ = o->next;
    delete o;
  }
}

void Heap::adopt(Object* object, size_t bytes) {
  object->heap = this;
  object->next = first_;
  if (first_ != nullptr) first_->prev = object;
  first_ = object;
  charge_live(object, bytes);
}

void Heap::charge_live(Object* object, size_t bytes) {
  object->charged += bytes;
  charge_open(bytes);
}

void Heap::charge_open(size_t bytes) {
  live_bytes_ += static_cast<int64_t>(bytes);
  if (live_bytes_ > max_live_bytes_) {
    fail_limit("the template holds more than " + std::to_string(max_live_bytes_) +
               " bytes of values at once");
  }
}

void Heap::reclaim(Object* object) {
  // Unlink now and destroy in a loop, so that a deep structure does not recurse.
  if (object->prev != nullptr) object->prev->next = object->next;
  if (object->next != nullptr) object->next->prev = object->prev;
  if (first_ == object) first_ = object->next;
  object->next = dead_;
  dead_ = object;
  if (draining_) return;
  draining_ = true;
  while (dead_ != nullptr) {
    Object* o = dead_;
    dead_ = o->next;
    live_bytes_ -= static_cast<int64_t>(o->charged);
    delete o;
  }
  draining_ = false;
}

void Heap::fail_steps() const {
  fail_limit("the template takes more than " + std::to_string(limits_.max_steps) + " steps");
}

void Heap::fail_text() const {
  fail_limit("the template makes a text of more than " + std::to_string(limits_.max_output_bytes) +
             " bytes");
}

void Heap::fail_nesting() {
  --nesting_;  // the guard that called enter() is not constructed, so it will not leave
  fail_limit("the template nests calls and expressions deeper than max_depth " +
             std::to_string(limits_.max_depth) + " allows");
}

int64_t StringObject::length() const {
  if (code_points < 0) code_points = count_code_points(bytes);
  return code_points;
}

void DictObject::build_index() const {
  for (uint32_t i = index.size(); i < entries.size(); ++i) {
    index.emplace(hash_value(entries[i].first), i);
  }
}

const Value* DictObject::find(const Value& key) const {
  if (key.is_string()) return find(key.as_string().bytes);
  const size_t hash = hash_value(key);  // also refuses unhashable keys
  if (entries.size() <= kLinearEntries) {
    for (const auto& [k, v] : entries) {
      if (same_key(k, key)) return &v;
    }
    return nullptr;
  }
  build_index();
  for (auto [it, end] = index.equal_range(hash); it != end; ++it) {
    if (same_key(entries[it->second].first, key)) return &entries[it->second].second;
  }
  return nullptr;
}

const Value* DictObject::find(std::string_view key) const {
  if (heap != nullptr) heap->step(static_cast<int64_t>(key.size() >> 10));
  const auto matches = [key](const Value& k) {
    return k.is_string() && k.as_string().bytes == key;
  };
  if (entries.size() <= kLinearEntries) {
    for (const auto& [k, v] : entries) {
      if (matches(k)) return &v;
    }
    return nullptr;
  }
  build_index();
  for (auto [it, end] = index.equal_range(hash_text(key)); it != end; ++it) {
    if (matches(entries[it->second].first)) return &entries[it->second].second;
  }
  return nullptr;
}

void DictObject::set(const Value& key, Value value) {
  if (const Value* found = find(key)) {
    *const_cast<Value*>(found) = std::move(value);
    return;
  }
  entries.emplace_back(key, std::move(value));
}

void TextBuilder::charge_open(size_t bytes) {
  open_bytes_ += bytes;  // first: when the heap refuses, the destructor still gives it back
  heap_.charge_open(bytes);
}

void TextBuilder::mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!marks_.empty() && marks_.back().end == begin) {
    marks_.back().end = end;
  } else {
    charge_open(sizeof(ByteRange));
    marks_.push_back({begin, end});
  }
}

void TextBuilder::append(std::string_view text, bool marked) {
  heap_.check_text(static_cast<int64_t>(text_.size() + text.size()));
  // Every KiB of the whole costs a step, however small the pieces.
  heap_.step(static_cast<int64_t>(((text_.size() + text.size()) >> 10) - (text_.size() >> 10)));
  charge_open(text.size());
  if (marked) mark(text_.size(), text_.size() + text.size());
  text_.append(text);
}

void TextBuilder::append(const StringObject& text, size_t begin, size_t end) {
  const size_t base = text_.size();
  append(text.bytes.substr(begin, end - begin), text.all_marked);
  if (text.all_marked) return;
  auto range = std::upper_bound(text.marks.begin(), text.marks.end(), begin,
                                [](size_t at, const ByteRange& r) { return at < r.end; });
  for (; range != text.marks.end() && range->begin < end; ++range) {
    const size_t from = std::max(range->begin, begin);
    const size_t to = std::min(range->end, end);
    if (from < to) mark(base + from - begin, base + to - begin);
  }
}

void TextBuilder::reserve(int64_t bytes) {
  heap_.check_text(bytes);
  text_.reserve(static_cast<size_t>(bytes));
}

Value TextBuilder::finish() {
  const size_t size = text_.size();
  heap_.release_open(std::exchange(open_bytes_, 0));  // from here the string is charged
  auto* string = heap_.create<StringObject>(std::move(text_));
  Value value = Value::object(Kind::kString, string);
  heap_.charge_live(string, size + marks_.size() * sizeof(ByteRange));
  if (marks_.size() == 1 && marks_[0].begin == 0 && marks_[0].end == size) {
    string->all_marked = true;
  } else {
    string->marks = std::move(marks_);
  }
  text_.clear();
  marks_.clear();
  return value;
}

Value make_string(Heap& heap, std::string_view text, bool marked) {
  heap.check_text(static_cast<int64_t>(text.size()));
  heap.step(static_cast<int64_t>(text.size() >> 10));
  auto* string = heap.create<StringObject>(std::string(text));
  Value value = Value::object(Kind::kString, string);
  heap.charge_live(string, text.size());
  string->all_marked = marked && !text.empty();
  return value;
}

Value substring(Heap& heap, const Value& text, size_t begin, size_t end) {
  const StringObject& source = text.as_string();
  if (begin == 0 && end == source.bytes.size()) return text;
  Value result;
  if (source.all_marked || source.marks.empty()) {
    result = make_string(heap, source.bytes.substr(begin, end - begin), source.all_marked);
  } else {
    TextBuilder builder(heap);
    builder.append(source, begin, end);
    result = builder.finish();
  }
  result.as_string().markup = source.markup;
  return result;
}

ListObject* make_list(Heap& heap, Flavor flavor) {
  auto* list = heap.create<ListObject>();
  list->flavor = flavor;
  return list;
}

DictObject* make_dict(Heap& heap) { return heap.create<DictObject>(); }

void push(Heap& heap, ListObject& list, Value value) {
  heap.step();
  list.items.push_back(std::move(value));
}

}  // namespace millrace::jinja
