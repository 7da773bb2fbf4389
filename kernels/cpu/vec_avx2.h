// Sixteen float lanes in two AVX2 registers, for the *_avx2.cc files only. Everything here has
// internal linkage on purpose: the linker must never choose a copy that was compiled for AVX2 to
// serve a file that runs on every CPU. For the same reason those files call no inline function of
// other headers.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace millrace::cpu {
namespace {

struct Avx2 {
  struct F {
    __m256 lo, hi;
  };
  using Mask = F;  // all ones or all zeros in each lane

  static F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static F set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static void store(float* p, F x) {
    _mm256_storeu_ps(p, x.lo);
    _mm256_storeu_ps(p + 8, x.hi);
  }
  static F load_bf16(const void* p) {
    const __m128i* bits = static_cast<const __m128i*>(p);
    return {expand(_mm_loadu_si128(bits)), expand(_mm_loadu_si128(bits + 1))};
  }
  // Round to nearest even. A NaN becomes the quiet NaN.
  static void store_bf16(void* p, F x) {
    const __m256i packed = _mm256_packus_epi32(round_bf16(x.lo), round_bf16(x.hi));
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
  }
  // Sixteen pairs of bf16, of which one half (0 or 1) is kept and the other cleared.
  static void keep_half(void* to, const void* from, int half) {
    const __m256i mask = _mm256_set1_epi32(half == 0 ? 0xffff : static_cast<int>(0xffff0000u));
    const __m256i* in = static_cast<const __m256i*>(from);
    __m256i* out = static_cast<__m256i*>(to);
    for (int i = 0; i < 2; ++i)
      _mm256_storeu_si256(out + i, _mm256_and_si256(_mm256_loadu_si256(in + i), mask));
  }

  static F add(F a, F b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
  static F sub(F a, F b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
  static F mul(F a, F b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
  static F div(F a, F b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
  static F fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  static F max(F a, F b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }

  // Lanes [begin, end); any integers.
  static Mask lanes(int begin, int end) {
    const __m256i lo = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return {lanes8(lo, begin, end), lanes8(_mm256_add_epi32(lo, _mm256_set1_epi32(8)), begin, end)};
  }
  static Mask is_nan(F x) {
    return {_mm256_cmp_ps(x.lo, x.lo, _CMP_UNORD_Q), _mm256_cmp_ps(x.hi, x.hi, _CMP_UNORD_Q)};
  }
  static Mask at_least(F a, F b) {
    return {_mm256_cmp_ps(a.lo, b.lo, _CMP_GE_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GE_OQ)};
  }
  static Mask mask_or(Mask a, Mask b) {
    return {_mm256_or_ps(a.lo, b.lo), _mm256_or_ps(a.hi, b.hi)};
  }
  static bool any(Mask m) { return _mm256_movemask_ps(_mm256_or_ps(m.lo, m.hi)) != 0; }
  static F select(Mask m, F yes, F no) {
    return {_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
  }

  // Fixed trees, so that the order of the additions is part of the definition.
  static float sum(F x) {
    const __m256 half = _mm256_add_ps(x.lo, x.hi);
    __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_shuffle_ps(quarter, quarter, 1)));
  }
  static float highest(F x) {
    const __m256 half = _mm256_max_ps(x.lo, x.hi);
    __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_max_ss(quarter, _mm_shuffle_ps(quarter, quarter, 1)));
  }

  // x = whole + fraction with |fraction| <= 1/2; then fraction's power times 2^whole.
  static F round(F x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(x.lo, kNearest), _mm256_round_ps(x.hi, kNearest)};
  }
  static F times_power_of_two(F x, F whole) {
    return {scale8(x.lo, whole.lo), scale8(x.hi, whole.hi)};
  }

  static __m256 expand(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }

 private:
  static __m256i round_bf16(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    rounded = _mm256_srli_epi32(rounded, 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc0), nan);
  }
  static __m256 lanes8(__m256i index, int begin, int end) {
    const __m256i below_end = _mm256_cmpgt_epi32(_mm256_set1_epi32(end), index);
    const __m256i below_begin = _mm256_cmpgt_epi32(_mm256_set1_epi32(begin), index);
    return _mm256_castsi256_ps(_mm256_andnot_si256(below_begin, below_end));
  }
  // Two factors of about 2^(whole / 2) each stay in range where one would not. Below the smallest
  // subnormal the result is 0 (or x itself if it is a NaN).
  static __m256 scale8(__m256 x, __m256 whole) {
    const __m256 least = _mm256_set1_ps(-250.0f), most = _mm256_set1_ps(250.0f);
    const __m256i n = _mm256_cvtps_epi32(_mm256_max_ps(_mm256_min_ps(whole, most), least));
    const __m256i half = _mm256_srai_epi32(n, 1);
    return _mm256_mul_ps(_mm256_mul_ps(x, power(half)), power(_mm256_sub_epi32(n, half)));
  }
  static __m256 power(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
};

}  // namespace
}  // namespace millrace::cpu
