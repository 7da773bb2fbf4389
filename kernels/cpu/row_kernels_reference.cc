#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/core/dtype.h"
#include "kernels/cpu/row_kernels.h"

namespace millrace::cpu {
namespace {

void rotate(float* x, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    x[i] = a * cos[i] - b * sin[i];
    x[half + i] = b * cos[i] + a * sin[i];
  }
}

void to_bf16(uint16_t* out, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = millrace::to_bf16(x[i]).bits;
}

bool block_max(float* out, const float* x, int64_t n) {
  bool nan = false;
  std::fill_n(out, row_blocks(n), -std::numeric_limits<float>::infinity());
  for (int64_t i = 0; i < n; ++i) {
    nan |= std::isnan(x[i]);
    out[i / kRowBlock] = std::max(out[i / kRowBlock], x[i]);
  }
  return !nan;
}

void exp_values(float* out, const float* x, int64_t n, float max, float scale) {
  for (int64_t i = 0; i < n; ++i) out[i] = std::exp2((x[i] - max) * scale);
}

void block_exp_sum(float* out, const float* x, int64_t n, float max, float scale, float floor) {
  std::fill_n(out, row_blocks(n), 0.0f);
  for (int64_t i = 0; i < n; ++i) {
    const float w = std::exp2((x[i] - max) * scale);
    if (w >= floor) out[i / kRowBlock] += w;
  }
}

constexpr RowKernels kKernels = {rotate, to_bf16, block_max, block_exp_sum, exp_values};

}  // namespace

const RowKernels& row_kernels_reference() { return kKernels; }

}  // namespace millrace::cpu
