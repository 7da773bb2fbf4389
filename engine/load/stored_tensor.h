// StoredTensor: one tensor as it lies in a checkpoint file: a view into the mapped bytes with its
// type and shape, already checked against the file's size. Owned by the checkpoint's catalog.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

// Element types that a checkpoint may hold and that we convert. Numbers are those of ggml, which
// GGUF files store; safetensors types map onto the first rows.
enum class StoredType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq4_nl = 20,
  iq4_xs = 23,
  bf16 = 30,
};

// Elements are stored in blocks of `elements`, `bytes` each.
struct StoredTypeInfo {
  StoredType type;
  const char* name;
  int64_t elements;
  int64_t bytes;
};

// Null if the number is not a type that we convert.
const StoredTypeInfo* find_stored_type(uint32_t number);
const StoredTypeInfo& stored_type_info(StoredType type);
// "F32, F16, ...": every supported type, for error messages.
std::string supported_stored_types();

struct StoredTensor {
  std::string name;  // as in the file
  StoredType type = StoredType::f32;
  std::vector<int64_t> shape;  // row-major, outermost first
  const uint8_t* data = nullptr;
  uint64_t bytes = 0;
  int file_idx = 0;

  int64_t columns() const { return shape.back(); }
  int64_t rows() const {
    int64_t n = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) n *= shape[i];
    return n;
  }
};

// "[49152, 576]"
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace millrace
