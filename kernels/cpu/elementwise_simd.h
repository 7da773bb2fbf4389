// Norms and gated activation for a vector type S of vec_avx2.h or vec_avx512.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/vec_exp2.h"

namespace millrace::cpu {
namespace {

constexpr int kLanes = 16;

// The last, incomplete vector of a row, through memory; what is beyond the row reads as zero.
template <class S>
inline typename S::F load_tail(const float* p, int64_t count) {
  float buffer[kLanes] = {};
  std::memcpy(buffer, p, static_cast<size_t>(count) * sizeof(float));
  return S::load(buffer);
}
template <class S>
inline void store_tail(float* p, int64_t count, typename S::F x) {
  float buffer[kLanes];
  S::store(buffer, x);
  std::memcpy(p, buffer, static_cast<size_t>(count) * sizeof(float));
}

// Four sums of squares, so that additions do not wait for each other: of each four vectors one goes
// to each sum; what remains at the end of the row goes to the first.
template <class S>
struct SquareSum {
  typename S::F sums[4] = {S::zero(), S::zero(), S::zero(), S::zero()};
  void add(int sum_idx, typename S::F x) { sums[sum_idx] = S::fma(x, x, sums[sum_idx]); }
  float total() const { return S::sum(S::add(S::add(sums[0], sums[1]), S::add(sums[2], sums[3]))); }
};

inline float inverse_rms(float square_sum, int64_t n, float eps) {
  return 1.0f / __builtin_sqrtf(square_sum / static_cast<float>(n) + eps);
}

template <class S>
void scale_row(float* out, const float* x, const float* weight, int64_t n, float factor) {
  const typename S::F scale = S::set(factor);
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    S::store(out + i, S::mul(S::mul(S::load(x + i), scale), S::load(weight + i)));
  if (whole == n) return;
  const typename S::F w = load_tail<S>(weight + whole, n - whole);
  store_tail<S>(out + whole, n - whole,
                S::mul(S::mul(load_tail<S>(x + whole, n - whole), scale), w));
}

template <class S>
void add_rmsnorm_row(float* out, float* residual, const float* delta, const float* weight,
                     int64_t n, float eps) {
  SquareSum<S> squares;
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      float* r = residual + i + v * kLanes;
      const typename S::F x = S::add(S::load(r), S::load(delta + i + v * kLanes));
      S::store(r, x);
      squares.add(v, x);
    }
  }
  for (; i < n; i += kLanes) {
    const int64_t count = n - i < kLanes ? n - i : kLanes;
    const typename S::F x =
        S::add(load_tail<S>(residual + i, count), load_tail<S>(delta + i, count));
    store_tail<S>(residual + i, count, x);
    squares.add(0, x);
  }
  scale_row<S>(out, residual, weight, n, inverse_rms(squares.total(), n, eps));
}

template <class S>
void rmsnorm_row(float* x, const float* weight, int64_t n, float eps) {
  SquareSum<S> squares;
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) squares.add(v, S::load(x + i + v * kLanes));
  for (; i < n; i += kLanes) squares.add(0, load_tail<S>(x + i, n - i < kLanes ? n - i : kLanes));
  scale_row<S>(x, x, weight, n, inverse_rms(squares.total(), n, eps));
}

template <class S>
inline typename S::F silu_times(typename S::F gate, typename S::F up) {
  constexpr float kMinusLog2E = -1.44269504f;
  // e^100 is already infinite, and the product below must not be; a NaN passes through max.
  const typename S::F bounded = S::max(S::set(-100.0f), gate);
  const typename S::F power = exp2<S>(S::mul(bounded, S::set(kMinusLog2E)));
  return S::mul(S::div(gate, S::add(S::set(1.0f), power)), up);
}

template <class S>
void silu_mul_row(float* out, const float* gate, const float* up, int64_t n) {
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    S::store(out + i, silu_times<S>(S::load(gate + i), S::load(up + i)));
  const int64_t left = n - whole;
  if (left == 0) return;
  store_tail<S>(out + whole, left,
                silu_times<S>(load_tail<S>(gate + whole, left), load_tail<S>(up + whole, left)));
}

template <class S>
ElementwiseKernels simd_kernels() {
  return {add_rmsnorm_row<S>, rmsnorm_row<S>, silu_mul_row<S>};
}

}  // namespace
}  // namespace millrace::cpu
