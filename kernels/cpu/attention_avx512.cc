#include "kernels/cpu/attention_simd.h"
#include "kernels/cpu/vec_avx512.h"

namespace millrace::cpu {
namespace {

struct Level : Avx512 {
  static constexpr int kWideColumns = 4;  // 6 rows x 4 accumulators, 4 values, one weight
  static constexpr int wide_tiles(int rows) { return rows <= 6 ? 4 : 1; }
};

// VDPBF16PS: lane += k[2i] q[2i] + k[2i + 1] q[2i + 1].
struct DotBf16 {
  using Q = uint16_t;
  using Key = __m512bh;
  static constexpr int kUnit = 2, kParts = 1, kTileStepBytes = 64;
  template <int part>
  static Key key(const char* k) {
    return reinterpret_cast<__m512bh>(_mm512_loadu_si512(k));
  }
  template <int part>
  static Key query(const char* q) {
    int pair;
    std::memcpy(&pair, q, sizeof(pair));
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
  }
  static __m512 add(__m512 acc, Key k, Key q) { return _mm512_dpbf16_ps(acc, k, q); }
  // In place and ascending: what is written lies before what is read next.
  static void pack_p(float* p, int begin, int end) {
    for (int i = begin; i < end; i += kAttentionTile)
      Avx512::store_bf16(reinterpret_cast<char*>(p) + i * 2, Avx512::load(p + i));
  }
};

struct DotF32 {
  using Q = float;
  using Key = __m512;
  static constexpr int kUnit = 1, kParts = 1, kTileStepBytes = 64;
  template <int part>
  static Key key(const char* k) {
    return _mm512_loadu_ps(k);
  }
  template <int part>
  static Key query(const char* q) {
    float x;
    std::memcpy(&x, q, sizeof(x));
    return _mm512_set1_ps(x);
  }
  static __m512 add(__m512 acc, Key k, Key q) { return _mm512_fmadd_ps(k, q, acc); }
  static void pack_p(float*, int, int) {}
};

void pack_bf16(void* out, const float* q, int64_t n) {
  for (int64_t d = 0; d < n; d += 16)
    Avx512::store_bf16(static_cast<char*>(out) + d * 2, Avx512::load(q + d));
}
void pack_f32(void* out, const float* q, int64_t n) {
  std::memcpy(out, q, static_cast<size_t>(n) * sizeof(float));
}

}  // namespace

AttentionKernels attention_kernels_avx512(DType kv) {
  return kv == DType::bf16 ? attention_kernels<Level, DotBf16>(pack_bf16)
                           : attention_kernels<Level, DotF32>(pack_f32);
}

}  // namespace millrace::cpu
