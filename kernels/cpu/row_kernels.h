// What the ops over single rows (RoPE, KV append, sampling) need from an instruction-set level.
// Every function is a fixed sequence of operations on its own arguments.
#pragma once

#include <cstdint>

#include "kernels/core/context.h"

namespace millrace::cpu {

inline constexpr int kRowBlock = 64;  // values that share one maximum or one sum
constexpr int64_t row_blocks(int64_t n) { return (n + kRowBlock - 1) / kRowBlock; }

struct RowKernels {
  // Rotates the pairs (x[i], x[i + half]) by the angles of cos[half] and sin[half].
  void (*rotate)(float* x, const float* cos, const float* sin, int64_t half);
  // out[n] = x rounded to the nearest bf16, ties to even.
  void (*to_bf16)(uint16_t* out, const float* x, int64_t n);
  // out[row_blocks(n)] = maximum of each block; false if x holds a NaN (out is then useless).
  bool (*block_max)(float* out, const float* x, int64_t n);
  // out[row_blocks(n)] = sum over each block of the powers 2^((x - max) * scale) that are at least
  // `floor`, for x <= max, scale > 0.
  void (*block_exp_sum)(float* out, const float* x, int64_t n, float max, float scale, float floor);
  // out[n] = the same powers themselves, bit for bit, without the floor.
  void (*exp_values)(float* out, const float* x, int64_t n, float max, float scale);
};

const RowKernels& row_kernels_reference();
const RowKernels& row_kernels_avx2();
const RowKernels& row_kernels_avx512();

inline const RowKernels& row_kernels(CpuLevel level) {
  switch (level) {
    case CpuLevel::reference: return row_kernels_reference();
    case CpuLevel::avx2: return row_kernels_avx2();
    case CpuLevel::avx512: return row_kernels_avx512();
  }
  return row_kernels_reference();
}

}  // namespace millrace::cpu
