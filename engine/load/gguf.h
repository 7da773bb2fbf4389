// GgufFile: the typed key-values and the tensor table of one GGUF file (version 2 or 3), read from
// bytes in memory. Every count and offset is checked against the size of the bytes before it is
// used, so hostile headers end as a Status that names file, place and expectation. Holds views into
// the bytes, which must outlive it. Immutable after parse; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/status.h"
#include "engine/load/stored_tensor.h"

namespace millrace {

// Value types by their number in the file.
enum class GgufType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

struct GgufValue {
  GgufType type = GgufType::u8;  // of each element, if an array
  bool is_array = false;
  uint64_t count = 1;
  std::span<const uint8_t> bytes;  // the elements as stored; strings with their lengths
};

class GgufFile {
 public:
  // `name` stands for the file in errors.
  static StatusOr<GgufFile> parse(std::span<const uint8_t> bytes, std::string name);

  const std::string& name() const { return name_; }
  uint32_t version() const { return version_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  bool has(std::string_view key) const { return values_.count(key) != 0; }

  // Typed reads: nothing if the key is absent, INVALID_ARGUMENT if its type is another one.
  // Integers of any width and sign are accepted where the value is in range.
  StatusOr<std::optional<int64_t>> integer(std::string_view key) const;
  StatusOr<std::optional<double>> number(std::string_view key) const;
  StatusOr<std::optional<bool>> boolean(std::string_view key) const;
  StatusOr<std::optional<std::string_view>> string(std::string_view key) const;
  StatusOr<std::vector<int64_t>> integers(std::string_view key) const;  // empty if absent
  StatusOr<std::vector<float>> floats(std::string_view key) const;
  StatusOr<std::vector<std::string_view>> strings(std::string_view key) const;

 private:
  friend class GgufParser;
  const GgufValue* find(std::string_view key) const;
  Status wrong_type(std::string_view key, const GgufValue& value, const char* expected) const;

  std::string name_;
  uint32_t version_ = 0;
  std::unordered_map<std::string_view, GgufValue> values_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace millrace
