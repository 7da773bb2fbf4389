// What an instruction-set level provides for the norms and the gated activation: one row at a
// time. A row's reductions have an order that depends on its length alone.
#pragma once

#include <cstdint>

namespace millrace::cpu {

struct ElementwiseKernels {
  // residual += delta; out = residual / sqrt(mean(residual^2) + eps) * weight, n elements each.
  void (*add_rmsnorm)(float* out, float* residual, const float* delta, const float* weight,
                      int64_t n, float eps);
  // The same without the addition, in place.
  void (*rmsnorm)(float* x, const float* weight, int64_t n, float eps);
  // out = gate / (1 + e^-gate) * up.
  void (*silu_mul)(float* out, const float* gate, const float* up, int64_t n);
};

ElementwiseKernels elementwise_kernels_reference();
ElementwiseKernels elementwise_kernels_avx2();
ElementwiseKernels elementwise_kernels_avx512();

}  // namespace millrace::cpu
