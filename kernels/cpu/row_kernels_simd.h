// The row kernels for a vector type S of vec_avx2.h or vec_avx512.h.
#pragma once

#include <cstring>

#include "kernels/cpu/row_kernels.h"
#include "kernels/cpu/vec_exp2.h"

namespace millrace::cpu {
namespace {

// Sixteen values from p, of which only the first n exist; the others are `fill`.
template <class S>
typename S::F load_first(const float* p, int64_t n, float fill) {
  if (n >= 16) return S::load(p);
  float lanes[16];
  for (int64_t i = 0; i < 16; ++i) lanes[i] = i < n ? p[i] : fill;
  return S::load(lanes);
}

template <class S>
void rotate(float* x, const float* cos, const float* sin, int64_t half) {
  int64_t i = 0;
  for (; i + 16 <= half; i += 16) {
    const auto a = S::load(x + i), b = S::load(x + half + i);
    const auto c = S::load(cos + i), s = S::load(sin + i);
    S::store(x + i, S::sub(S::mul(a, c), S::mul(b, s)));
    S::store(x + half + i, S::add(S::mul(b, c), S::mul(a, s)));
  }
  for (; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    x[i] = a * cos[i] - b * sin[i];
    x[half + i] = b * cos[i] + a * sin[i];
  }
}

template <class S>
void to_bf16(uint16_t* out, const float* x, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) S::store_bf16(out + i, S::load(x + i));
  if (i == n) return;
  uint16_t rounded[16];
  S::store_bf16(rounded, load_first<S>(x + i, n - i, 0.0f));
  std::memcpy(out + i, rounded, static_cast<size_t>(n - i) * sizeof(uint16_t));
}

template <class S>
bool block_max(float* out, const float* x, int64_t n) {
  constexpr float kLowest = -__builtin_inff();
  auto nan = S::is_nan(S::zero());
  for (int64_t begin = 0; begin < n; begin += kRowBlock) {
    const int64_t end = begin + kRowBlock < n ? begin + kRowBlock : n;
    auto max = S::set(kLowest);
    for (int64_t i = begin; i < end; i += 16) {
      const auto v = load_first<S>(x + i, end - i, kLowest);
      nan = S::mask_or(nan, S::is_nan(v));
      max = S::max(max, v);
    }
    out[begin / kRowBlock] = S::highest(max);
  }
  return !S::any(nan);
}

template <class S>
typename S::F power(typename S::F x, typename S::F max, typename S::F scale) {
  return exp2<S>(S::mul(S::sub(x, max), scale));
}

template <class S>
void block_exp_sum(float* out, const float* x, int64_t n, float max, float scale, float floor) {
  const auto max16 = S::set(max), scale16 = S::set(scale), floor16 = S::set(floor);
  for (int64_t begin = 0; begin < n; begin += kRowBlock) {
    const int64_t end = begin + kRowBlock < n ? begin + kRowBlock : n;
    auto sum = S::zero();
    for (int64_t i = begin; i < end; i += 16) {
      const auto v = load_first<S>(x + i, end - i, -__builtin_inff());
      const auto w = power<S>(v, max16, scale16);
      sum = S::add(sum, S::select(S::at_least(w, floor16), w, S::zero()));
    }
    out[begin / kRowBlock] = S::sum(sum);
  }
}

template <class S>
void exp_values(float* out, const float* x, int64_t n, float max, float scale) {
  const auto max16 = S::set(max), scale16 = S::set(scale);
  for (int64_t i = 0; i < n; i += 16) {
    const auto v = power<S>(load_first<S>(x + i, n - i, max), max16, scale16);
    if (n - i >= 16) {
      S::store(out + i, v);
    } else {
      float lanes[16];
      S::store(lanes, v);
      std::memcpy(out + i, lanes, static_cast<size_t>(n - i) * sizeof(float));
    }
  }
}

template <class S>
constexpr RowKernels kRowKernels = {rotate<S>, to_bf16<S>, block_max<S>, block_exp_sum<S>,
                                    exp_values<S>};

}  // namespace
}  // namespace millrace::cpu
