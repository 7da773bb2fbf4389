#include "kernels/cpu/attention_simd.h"
#include "kernels/cpu/vec_avx2.h"

namespace millrace::cpu {
namespace {

// One F is two of the 16 registers: 6 rows x 1 accumulator, one operand, one broadcast.
struct Level : Avx2 {
  static constexpr int kWideColumns = 1;
  static constexpr int wide_tiles(int rows) { return rows == 1 ? 2 : 1; }
};

// A 32-bit lane of K holds elements 2i (low half) and 2i + 1 (high half) of one position.
struct DotBf16 {
  using Q = float;  // rounded to bf16, kept as f32
  using Key = Avx2::F;
  static constexpr int kUnit = 2, kParts = 2, kTileStepBytes = 64;
  template <int part>
  static Key key(const char* k) {
    return {half<part>(k), half<part>(k + 32)};
  }
  template <int part>
  static __m256 query(const char* q) {
    return _mm256_broadcast_ss(reinterpret_cast<const float*>(q) + part);
  }
  static Key add(Key acc, Key k, __m256 q) {
    return {_mm256_fmadd_ps(k.lo, q, acc.lo), _mm256_fmadd_ps(k.hi, q, acc.hi)};
  }
  static void pack_p(float*, int, int) {}
  template <int part>
  static __m256 half(const char* k) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(k));
    if constexpr (part == 0) return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    return _mm256_castsi256_ps(
        _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};

struct DotF32 {
  using Q = float;
  using Key = Avx2::F;
  static constexpr int kUnit = 1, kParts = 1, kTileStepBytes = 64;
  template <int part>
  static Key key(const char* k) {
    return Avx2::load(reinterpret_cast<const float*>(k));
  }
  template <int part>
  static __m256 query(const char* q) {
    return _mm256_broadcast_ss(reinterpret_cast<const float*>(q));
  }
  static Key add(Key acc, Key k, __m256 q) {
    return {_mm256_fmadd_ps(k.lo, q, acc.lo), _mm256_fmadd_ps(k.hi, q, acc.hi)};
  }
  static void pack_p(float*, int, int) {}
};

void pack_bf16(void* out, const float* q, int64_t n) {
  for (int64_t d = 0; d < n; d += 16) {
    uint16_t rounded[16];
    Avx2::store_bf16(rounded, Avx2::load(q + d));
    Avx2::store(static_cast<float*>(out) + d, Avx2::load_bf16(rounded));
  }
}
void pack_f32(void* out, const float* q, int64_t n) {
  std::memcpy(out, q, static_cast<size_t>(n) * sizeof(float));
}

}  // namespace

AttentionKernels attention_kernels_avx2(DType kv) {
  return kv == DType::bf16 ? attention_kernels<Level, DotBf16>(pack_bf16)
                           : attention_kernels<Level, DotF32>(pack_f32);
}

}  // namespace millrace::cpu
