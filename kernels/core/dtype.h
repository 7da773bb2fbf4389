// Element types of tensors and the scalar conversions between them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/core/check.h"

namespace millrace {

enum class DType : uint8_t { f32, bf16, f16, i32 };

constexpr size_t dtype_bytes(DType type) {
  return type == DType::f32 || type == DType::i32 ? 4 : 2;
}

constexpr const char* dtype_name(DType type) {
  switch (type) {
    case DType::f32: return "float32";
    case DType::bf16: return "bfloat16";
    case DType::f16: return "float16";
    case DType::i32: return "int32";
  }
  return "?";
}

// bfloat16 as stored: the upper half of an IEEE binary32.
struct bf16 {
  uint16_t bits;
};

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

// Round to nearest even; a NaN stays a (quiet) NaN.
inline bf16 to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// IEEE binary16 as stored.
float f16_to_float(uint16_t bits);
uint16_t float_to_f16(float x);  // round to nearest even, overflow to infinity

}  // namespace millrace
