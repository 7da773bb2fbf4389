#include <immintrin.h>

#include "kernels/cpu/peak_loops.h"

namespace millrace::cpu {
namespace {

constexpr int kChains = 12;

// The empty assembly keeps each accumulator in a register and its value unknown.
#define KEEP(x) __asm__ volatile("" : "+x"(x))

double f32_loop(int64_t steps) {
  __m256 acc[kChains], x = _mm256_set1_ps(1.0f);
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) acc[c] = _mm256_setzero_ps();
  for (int64_t i = 0; i < steps; ++i)
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      acc[c] = _mm256_fmadd_ps(x, x, acc[c]);
      KEEP(acc[c]);
    }
  return 2.0 * 8 * kChains * static_cast<double>(steps);
}

// A multiplication of 16-bit pairs and an addition: what widened int8 weights cost.
double int8_loop(int64_t steps) {
  __m256i acc[kChains], x = _mm256_setzero_si256();
  KEEP(x);
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) acc[c] = _mm256_setzero_si256();
  for (int64_t i = 0; i < steps; ++i)
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      acc[c] = _mm256_add_epi32(acc[c], _mm256_madd_epi16(x, x));
      KEEP(acc[c]);
    }
  return 2.0 * 16 * kChains * static_cast<double>(steps);
}

#undef KEEP

}  // namespace

PeakLoops peak_loops_avx2() { return {f32_loop, f32_loop, int8_loop}; }

}  // namespace millrace::cpu
