// Value: what a template expression yields, with Python's semantics. Heap: the owner of everything
// that one render creates; it counts live bytes and steps against the limits. One render runs on
// one thread, so reference counts are plain integers. Objects of a compiled template (literals)
// have no heap: they are shared by all renders, never counted and never changed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "engine/text/chat_template.h"
#include "engine/text/jinja_error.h"

namespace millrace::jinja {

class Heap;
class Interpreter;
class Value;

// The limits of one render and what it has used so far.
class Heap {
 public:
  explicit Heap(const RenderLimits& limits);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  template <class T, class... A>
  T* create(A&&... args) {
    T* object = new T(std::forward<A>(args)...);
    adopt(object, sizeof(T));
    return object;
  }

  // One step is one evaluated node, one list item made or walked, one KiB of text copied, or
  // kScanBytes of text looked at character by character.
  void step(int64_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.max_steps) fail_steps();
  }
  static constexpr size_t kScanBytes = 128;
  void scan(size_t bytes) { step(static_cast<int64_t>(bytes / kScanBytes)); }
  // Fails when a text of `bytes` would be too long; called before the text is allocated.
  void check_text(int64_t bytes) const {
    if (bytes > limits_.max_output_bytes) fail_text();
  }
  void charge_live(struct Object* object, size_t bytes);
  // Bytes of a text that is still being built.
  void charge_open(size_t bytes);
  void release_open(size_t bytes) { live_bytes_ -= static_cast<int64_t>(bytes); }
  void reclaim(struct Object* object);

  // Nesting of evaluation and of data walks; see Nested.
  void enter() {
    if (++nesting_ > max_nesting_) fail_nesting();
  }
  void leave() { --nesting_; }
  const RenderLimits& limits() const { return limits_; }

 private:
  void adopt(struct Object* object, size_t bytes);
  void destroy(struct Object* object);
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_text() const;
  [[noreturn]] void fail_nesting();

  RenderLimits limits_;
  int64_t max_nesting_;
  int64_t max_live_bytes_;
  int64_t steps_ = 0;
  int64_t live_bytes_ = 0;
  int64_t nesting_ = 0;
  bool draining_ = false;
  struct Object* first_ = nullptr;  // every live object, so that cycles end with the render
  struct Object* dead_ = nullptr;   // objects waiting to be destroyed, linked by `next`
};

// Scope guard for one level of recursion.
class Nested {
 public:
  explicit Nested(Heap& heap) : heap_(heap) { heap_.enter(); }
  ~Nested() { heap_.leave(); }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  Heap& heap_;
};

struct Object {
  virtual ~Object() = default;
  // Drops every Value held; called on all live objects when a render ends.
  virtual void clear() {}

  Heap* heap = nullptr;
  Object* prev = nullptr;
  Object* next = nullptr;
  uint32_t refs = 0;
  size_t charged = 0;  // bytes counted as live in the heap
};

enum class Kind : uint8_t {
  kAbsent,  // no binding; never seen by template code
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,  // ListObject, of any flavor
  kDict,
  kNamespace,
  kCallable,
  kLoop,
};

struct StringObject;
struct ListObject;
struct DictObject;
struct CallableObject;
struct LoopObject;

class Value {
 public:
  Value() : kind_(Kind::kNone) { bits_.i = 0; }
  Value(const Value& other) : kind_(other.kind_), bits_(other.bits_) { retain(); }
  Value(Value&& other) noexcept : kind_(other.kind_), bits_(other.bits_) {
    other.kind_ = Kind::kNone;
  }
  Value& operator=(Value other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(bits_, other.bits_);
    return *this;
  }
  ~Value() {
    if (kind_ >= Kind::kString && bits_.o->heap != nullptr && --bits_.o->refs == 0) {
      bits_.o->heap->reclaim(bits_.o);
    }
  }

  static Value absent() { return Value(Kind::kAbsent); }
  // `what` names what was missing and must outlive the render (null: nothing to name).
  static Value undefined(const std::string* what = nullptr) {
    Value v(Kind::kUndefined);
    v.bits_.name = what;
    return v;
  }
  static Value boolean(bool b) {
    Value v(Kind::kBool);
    v.bits_.i = b;
    return v;
  }
  static Value integer(int64_t i) {
    Value v(Kind::kInt);
    v.bits_.i = i;
    return v;
  }
  static Value real(double d) {
    Value v(Kind::kFloat);
    v.bits_.d = d;
    return v;
  }
  static Value object(Kind kind, Object* o) {
    Value v(kind);
    v.bits_.o = o;
    v.retain();
    return v;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  // Python's bool is an int.
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }

  bool as_bool() const { return bits_.i != 0; }
  int64_t as_int() const { return bits_.i; }
  double as_double() const {
    return kind_ == Kind::kFloat ? bits_.d : static_cast<double>(bits_.i);
  }
  const std::string* undefined_name() const { return bits_.name; }
  Object* as_object() const { return bits_.o; }
  StringObject& as_string() const;
  ListObject& as_list() const;
  DictObject& as_dict() const;  // also of a namespace
  CallableObject& as_callable() const;
  LoopObject& as_loop() const;

 private:
  explicit Value(Kind kind) : kind_(kind) { bits_.i = 0; }
  void retain() {
    if (kind_ >= Kind::kString && bits_.o->heap != nullptr) ++bits_.o->refs;
  }

  Kind kind_;
  union {
    int64_t i;
    double d;
    Object* o;
    const std::string* name;
  } bits_;
};

using Values = absl::InlinedVector<Value, 4>;

// UTF-8 text and which bytes of it came from a user.
struct StringObject : Object {
  explicit StringObject(std::string text) : owned(std::move(text)), bytes(owned) {}

  bool has_marks() const { return all_marked || !marks.empty(); }
  int64_t length() const;  // in code points
  bool is_ascii() const { return length() == static_cast<int64_t>(bytes.size()); }

  std::string owned;
  std::string_view bytes;        // of `owned`
  std::vector<ByteRange> marks;  // ascending, disjoint; unused when all_marked
  bool all_marked = false;
  bool markup = false;  // made by |safe: + escapes the other side
  mutable int64_t code_points = -1;
};

// Every Python sequence and iterator that templates meet.
enum class Flavor : uint8_t {
  kList,
  kTuple,
  kRange,
  kKeys,       // dict.keys()
  kValues,     // dict.values()
  kItems,      // dict.items()
  kGenerator,  // can be read once
};

struct ListObject : Object {
  void clear() override { items.clear(); }
  bool has_length() const { return flavor != Flavor::kGenerator; }
  bool is_sequence() const {
    return flavor == Flavor::kList || flavor == Flavor::kTuple || flavor == Flavor::kRange;
  }

  Flavor flavor = Flavor::kList;
  bool group = false;  // a (grouper, list) pair of the groupby filter
  std::vector<Value> items;
  int64_t start = 0, stop = 0, step = 1;  // kRange only, for printing
};

// Insertion-ordered mapping. Keys are hashable values; 1, 1.0 and True are one key.
struct DictObject : Object {
  void clear() override {
    entries.clear();
    index.clear();
  }
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value);

  std::vector<std::pair<Value, Value>> entries;

 private:
  void build_index() const;
  // Hash of key -> position in entries; filled once there are enough entries to pay for it.
  mutable std::unordered_multimap<size_t, uint32_t> index;
};

struct Arguments {
  Values positional;
  absl::InlinedVector<std::pair<std::string_view, Value>, 2> named;
  Value keywords;  // the dict behind **, which owns the names taken from it
};

using Method = Value (*)(Interpreter&, const Value& self, Arguments& arguments);

// A function value: a global, a method bound to its object, or something with state (see
// derived types in the interpreter and the globals).
struct CallableObject : Object {
  CallableObject(std::string_view function_name, Method function, Value bound)
      : name(function_name), method(function), self(std::move(bound)) {}
  void clear() override { self = Value(); }
  virtual Value call(Interpreter& interpreter, Arguments& arguments) {
    if (method == nullptr) fail("'" + std::string(name) + "' object is not callable");
    return method(interpreter, self, arguments);
  }
  virtual Value attribute(Interpreter&, std::string_view) { return Value::undefined(); }

  std::string_view name;  // outlives the render
  Method method;
  Value self;
};

inline StringObject& Value::as_string() const { return *static_cast<StringObject*>(bits_.o); }
inline ListObject& Value::as_list() const { return *static_cast<ListObject*>(bits_.o); }
inline DictObject& Value::as_dict() const { return *static_cast<DictObject*>(bits_.o); }
inline CallableObject& Value::as_callable() const { return *static_cast<CallableObject*>(bits_.o); }

// Builds a text piece by piece, keeping marks. Every append is checked against the limit first.
class TextBuilder {
 public:
  explicit TextBuilder(Heap& heap) : heap_(heap) {}
  ~TextBuilder() { heap_.release_open(open_bytes_); }
  TextBuilder(const TextBuilder&) = delete;
  TextBuilder& operator=(const TextBuilder&) = delete;

  Heap& heap() { return heap_; }
  void append(std::string_view text, bool marked = false);
  void append(const StringObject& text) { append(text, 0, text.bytes.size()); }
  void append(const StringObject& text, size_t begin, size_t end);  // bytes [begin, end)
  void reserve(int64_t bytes);
  size_t size() const { return text_.size(); }
  std::string_view view() const { return text_; }
  Value finish();
  RenderedText take() { return RenderedText{std::move(text_), std::move(marks_)}; }

 private:
  void mark(size_t begin, size_t end);
  void charge_open(size_t bytes);

  Heap& heap_;
  size_t open_bytes_ = 0;  // charged to the heap for text_ and marks_
  std::string text_;
  std::vector<ByteRange> marks_;
};

Value make_string(Heap& heap, std::string_view text, bool marked = false);
// Bytes [begin, end) of `text`, with its marks.
Value substring(Heap& heap, const Value& text, size_t begin, size_t end);
ListObject* make_list(Heap& heap, Flavor flavor = Flavor::kList);
DictObject* make_dict(Heap& heap);
inline Value value_of(ListObject* list) { return Value::object(Kind::kList, list); }
inline Value value_of(DictObject* dict) { return Value::object(Kind::kDict, dict); }
// push_back that costs a step.
void push(Heap& heap, ListObject& list, Value value);

}  // namespace millrace::jinja
