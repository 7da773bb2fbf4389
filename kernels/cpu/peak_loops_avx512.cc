#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "kernels/cpu/peak_loops.h"

namespace millrace::cpu {
namespace {

constexpr int kChains = 12;  // latency 6 times two a cycle

// The empty assembly keeps each accumulator in a register and its value unknown.
#define KEEP(x) __asm__ volatile("" : "+v"(x))

double f32_loop(int64_t steps) {
  __m512 acc[kChains], x = _mm512_set1_ps(1.0f);
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) acc[c] = _mm512_setzero_ps();
  for (int64_t i = 0; i < steps; ++i)
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      acc[c] = _mm512_fmadd_ps(x, x, acc[c]);
      KEEP(acc[c]);
    }
  return 2.0 * 16 * kChains * static_cast<double>(steps);
}

double bf16_loop(int64_t steps) {
  __m512 acc[kChains];
  __m512i x = _mm512_set1_epi32(0);
  KEEP(x);
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) acc[c] = _mm512_setzero_ps();
  for (int64_t i = 0; i < steps; ++i)
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      acc[c] =
          _mm512_dpbf16_ps(acc[c], reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(x));
      KEEP(acc[c]);
    }
  return 2.0 * 32 * kChains * static_cast<double>(steps);
}

double int8_loop(int64_t steps) {
  __m512i acc[kChains], x = _mm512_set1_epi32(0);
  KEEP(x);
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) acc[c] = _mm512_setzero_si512();
  for (int64_t i = 0; i < steps; ++i)
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      acc[c] = _mm512_dpbusd_epi32(acc[c], x, x);
      KEEP(acc[c]);
    }
  return 2.0 * 64 * kChains * static_cast<double>(steps);
}

#undef KEEP

}  // namespace

PeakLoops peak_loops_avx512() { return {f32_loop, bf16_loop, int8_loop}; }

}  // namespace millrace::cpu
