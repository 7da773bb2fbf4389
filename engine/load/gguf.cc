#include "engine/load/gguf.h"

#include <cstring>
#include <limits>

#include "engine/load/gguf_parser.h"

namespace millrace {
namespace {

template <class T>
T element(const GgufValue& value, uint64_t i) {
  T x;
  std::memcpy(&x, value.bytes.data() + i * sizeof(T), sizeof(T));
  return x;
}

// Element i as an integer; nothing for other types and values beyond int64.
std::optional<int64_t> integer_element(const GgufValue& value, uint64_t i) {
  switch (value.type) {
    case GgufType::u8: return element<uint8_t>(value, i);
    case GgufType::i8: return element<int8_t>(value, i);
    case GgufType::u16: return element<uint16_t>(value, i);
    case GgufType::i16: return element<int16_t>(value, i);
    case GgufType::u32: return element<uint32_t>(value, i);
    case GgufType::i32: return element<int32_t>(value, i);
    case GgufType::i64: return element<int64_t>(value, i);
    case GgufType::u64: {
      const uint64_t x = element<uint64_t>(value, i);
      if (x > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(x);
    }
    default: return std::nullopt;
  }
}

std::optional<double> number_element(const GgufValue& value, uint64_t i) {
  if (value.type == GgufType::f32) return element<float>(value, i);
  if (value.type == GgufType::f64) return element<double>(value, i);
  if (const auto x = integer_element(value, i)) return static_cast<double>(*x);
  return std::nullopt;
}

}  // namespace

StatusOr<GgufFile> GgufFile::parse(std::span<const uint8_t> bytes, std::string name) {
  return GgufParser(bytes, std::move(name)).run();
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

Status GgufFile::wrong_type(std::string_view key, const GgufValue& value,
                            const char* expected) const {
  return absl::InvalidArgumentError(
      name_ + ": key \"" + std::string(key) + "\" is " + (value.is_array ? "an array of " : "a ") +
      gguf_type_name(value.type) + " where " + expected + " is expected.");
}

StatusOr<std::optional<int64_t>> GgufFile::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<int64_t>();
  const auto x = value->is_array ? std::nullopt : integer_element(*value, 0);
  if (!x) return wrong_type(key, *value, "an integer");
  return x;
}

StatusOr<std::optional<double>> GgufFile::number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<double>();
  const auto x = value->is_array ? std::nullopt : number_element(*value, 0);
  if (!x) return wrong_type(key, *value, "a number");
  return x;
}

StatusOr<std::optional<bool>> GgufFile::boolean(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (value->is_array || value->type != GgufType::boolean) {
    return wrong_type(key, *value, "a bool");
  }
  return std::optional<bool>(value->bytes[0] != 0);
}

StatusOr<std::optional<std::string_view>> GgufFile::string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::string_view>();
  if (value->is_array || value->type != GgufType::string) {
    return wrong_type(key, *value, "a string");
  }
  return std::optional<std::string_view>(
      std::string_view(reinterpret_cast<const char*>(value->bytes.data()) + sizeof(uint64_t),
                       value->bytes.size() - sizeof(uint64_t)));
}

StatusOr<std::vector<int64_t>> GgufFile::integers(std::string_view key) const {
  std::vector<int64_t> out;
  const GgufValue* value = find(key);
  if (value == nullptr) return out;
  if (!value->is_array) return wrong_type(key, *value, "an array of integers");
  out.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto x = integer_element(*value, i);
    if (!x) return wrong_type(key, *value, "an array of integers");
    out.push_back(*x);
  }
  return out;
}

StatusOr<std::vector<float>> GgufFile::floats(std::string_view key) const {
  std::vector<float> out;
  const GgufValue* value = find(key);
  if (value == nullptr) return out;
  if (!value->is_array || value->type != GgufType::f32) {
    return wrong_type(key, *value, "an array of float32");
  }
  out.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) out.push_back(element<float>(*value, i));
  return out;
}

StatusOr<std::vector<std::string_view>> GgufFile::strings(std::string_view key) const {
  std::vector<std::string_view> out;
  const GgufValue* value = find(key);
  if (value == nullptr) return out;
  if (!value->is_array || value->type != GgufType::string) {
    return wrong_type(key, *value, "an array of strings");
  }
  out.reserve(value->count);
  const char* at = reinterpret_cast<const char*>(value->bytes.data());
  for (uint64_t i = 0; i < value->count; ++i) {
    uint64_t size;
    std::memcpy(&size, at, sizeof size);
    out.emplace_back(at + sizeof size, size);
    at += sizeof size + size;
  }
  return out;
}

}  // namespace millrace
