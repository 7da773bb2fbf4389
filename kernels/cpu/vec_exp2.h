// 2^x for a vector type of vec_avx2.h or vec_avx512.h; for x <= 0 (larger x up to 127 also work).
// Relative error below 3e-7; 2^0 is exactly 1; 2^-inf is 0; a NaN stays one.
#pragma once

namespace millrace::cpu {
namespace {

template <class S>
inline typename S::F exp2(typename S::F x) {
  using F = typename S::F;
  // Interpolation of (2^f - 1) / f at the Chebyshev nodes of [-1/2, 1/2].
  constexpr float kC1 = 0x1.62e430p-1f, kC2 = 0x1.ebfbe0p-3f, kC3 = 0x1.c6af6cp-5f;
  constexpr float kC4 = 0x1.3b2a54p-7f, kC5 = 0x1.5f0890p-10f, kC6 = 0x1.441388p-13f;
  // Everything under -200 is 0 in binary32; the bound keeps -inf out of the subtraction below. The
  // order of max's operands lets a NaN through.
  x = S::max(S::set(-200.0f), x);
  const F whole = S::round(x);
  const F f = S::sub(x, whole);
  F p = S::fma(S::set(kC6), f, S::set(kC5));
  p = S::fma(p, f, S::set(kC4));
  p = S::fma(p, f, S::set(kC3));
  p = S::fma(p, f, S::set(kC2));
  p = S::fma(p, f, S::set(kC1));
  p = S::fma(p, f, S::set(1.0f));
  return S::times_power_of_two(p, whole);
}

}  // namespace
}  // namespace millrace::cpu
