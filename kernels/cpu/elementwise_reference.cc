// The definition of the norms and the gated activation: elements in ascending order.
#include <cmath>

#include "kernels/cpu/elementwise.h"

namespace millrace::cpu {
namespace {

void rmsnorm(float* out, const float* x, const float* weight, int64_t n, float eps) {
  float squares = 0.0f;
  for (int64_t i = 0; i < n; ++i) squares += x[i] * x[i];
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(n) + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

void add_rmsnorm_row(float* out, float* residual, const float* delta, const float* weight,
                     int64_t n, float eps) {
  for (int64_t i = 0; i < n; ++i) residual[i] += delta[i];
  rmsnorm(out, residual, weight, n, eps);
}

void rmsnorm_row(float* x, const float* weight, int64_t n, float eps) {
  rmsnorm(x, x, weight, n, eps);
}

void silu_mul_row(float* out, const float* gate, const float* up, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

}  // namespace

ElementwiseKernels elementwise_kernels_reference() {
  return {add_rmsnorm_row, rmsnorm_row, silu_mul_row};
}

}  // namespace millrace::cpu
