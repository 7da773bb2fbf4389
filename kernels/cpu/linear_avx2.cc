// y = x W^T with AVX2, FMA and F16C. A tile is R rows by NV vectors of 8 columns. Integer dot
// products are exact without VNNI: int8 weights are widened to 16 bits before they are multiplied
// (even and odd k apart, so x is stored as 16-bit codes in the order k0 k2 k1 k3 of each quad);
// int4 codes are at most 15, so a whole group of byte products fits 16 bits:
// 8 quads * 2 products * 15 * 128 = 30720.
#include <immintrin.h>

#include "kernels/cpu/linear.h"
#include "kernels/cpu/linear_tiles.h"

namespace millrace::cpu {
namespace {

constexpr int kVector = 8;   // columns
constexpr int kIntRows = 2;  // of a tile of integer weights

// Bytes of a panel that stay in the second-level cache while all rows pass.
constexpr int64_t kBlockBytes = 256 << 10;

inline __m256i column_mask(int64_t columns, int v) {
  const int64_t left = columns - kVector * v;
  const int count = left >= kVector ? kVector : left <= 0 ? 0 : static_cast<int>(left);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

template <int R, int NV>
inline __attribute__((always_inline)) void load_tile(const Tile& t, __m256 (&acc)[R][NV]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v)
      acc[r][v] = t.first ? _mm256_setzero_ps()
                          : _mm256_maskload_ps(t.out + r * t.out_stride + kVector * v,
                                               column_mask(t.columns, v));
}

template <int R, int NV>
inline __attribute__((always_inline)) void store_tile(const Tile& t, const __m256 (&acc)[R][NV]) {
#pragma GCC unroll 8
  for (int v = 0; v < NV; ++v) {
    const __m256i mask = column_mask(t.columns, v);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m256 sum =
          t.bias ? _mm256_add_ps(acc[r][v], _mm256_maskload_ps(t.bias + kVector * v, mask))
                 : acc[r][v];
      _mm256_maskstore_ps(t.out + r * t.out_stride + kVector * v, mask, sum);
    }
  }
}

inline __m256i load_bytes(const char* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

template <int R, int NV>
__attribute__((noinline)) void tile_f32(const Tile& t) {
  __m256 acc[R][NV];
  load_tile(t, acc);
  const char* w = t.w;
  for (int64_t k = 0; k < t.steps; ++k, w += kStepBytes) {
    __m256 weight[NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v)
      weight[v] = _mm256_loadu_ps(reinterpret_cast<const float*>(w) + kVector * v);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m256 x = _mm256_set1_ps(reinterpret_cast<const float*>(t.x + r * t.x_stride)[k]);
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) acc[r][v] = _mm256_fmadd_ps(x, weight[v], acc[r][v]);
    }
  }
  store_tile(t, acc);
}

// x is bf16 too; both factors of a pair widen to f32 by placing their bits in the upper half.
template <int R, int NV>
__attribute__((noinline)) void tile_bf16(const Tile& t) {
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  __m256 acc[R][NV];
  load_tile(t, acc);
  const char* w = t.w;
  for (int64_t pair = 0; pair < t.steps; ++pair, w += kStepBytes) {
    __m256 even[NV], odd[NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      const __m256i both = load_bytes(w + 32 * v);
      even[v] = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
      odd[v] = _mm256_castsi256_ps(_mm256_and_si256(both, upper));
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m256i x =
          _mm256_set1_epi32(reinterpret_cast<const int32_t*>(t.x + r * t.x_stride)[pair]);
      const __m256 x_even = _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
      const __m256 x_odd = _mm256_castsi256_ps(_mm256_and_si256(x, upper));
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) {
        acc[r][v] = _mm256_fmadd_ps(x_even, even[v], acc[r][v]);
        acc[r][v] = _mm256_fmadd_ps(x_odd, odd[v], acc[r][v]);
      }
    }
  }
  store_tile(t, acc);
}

inline __m256 load_f16(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// acc += dot * (weight scale * x scale) (+ minimum * minimum factor), for one group.
template <int R, int NV>
inline __attribute__((always_inline)) void add_group(const Tile& t, int64_t g,
                                                     const __m256i (&dot)[R][NV],
                                                     __m256 (&acc)[R][NV]) {
#pragma GCC unroll 8
  for (int v = 0; v < NV; ++v) {
    const __m256 scale = load_f16(t.scales + g * kPanel + kVector * v);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(t.x_scales[g * kIntRows + r]));
      acc[r][v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[r][v]), both, acc[r][v]);
    }
    if (!t.minima) continue;
    const __m256 minimum = load_f16(t.minima + g * kPanel + kVector * v);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
      acc[r][v] =
          _mm256_fmadd_ps(minimum, _mm256_set1_ps(t.minimum_factors[g * kIntRows + r]), acc[r][v]);
  }
}

// A quad of k for all rows: dot += weight (unsigned) * x; x at 16-bit codes k0 k2 k1 k3.
template <int R, int NV>
inline __attribute__((always_inline)) void dot_quad(__m256i (&dot)[R][NV], const char* w,
                                                    const char* x, int64_t x_stride) {
  const __m256i low_bytes = _mm256_set1_epi16(255);
  __m256i even[NV], odd[NV];
#pragma GCC unroll 8
  for (int v = 0; v < NV; ++v) {
    const __m256i bytes = load_bytes(w + 32 * v);
    even[v] = _mm256_and_si256(bytes, low_bytes);
    odd[v] = _mm256_srli_epi16(bytes, 8);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const auto* codes = reinterpret_cast<const int32_t*>(x + r * x_stride);
    const __m256i x_even = _mm256_set1_epi32(codes[0]), x_odd = _mm256_set1_epi32(codes[1]);
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      const __m256i sum =
          _mm256_add_epi32(_mm256_madd_epi16(even[v], x_even), _mm256_madd_epi16(odd[v], x_odd));
      dot[r][v] = _mm256_add_epi32(dot[r][v], sum);
    }
  }
}

template <int R, int NV>
__attribute__((noinline)) void tile_int8(const Tile& t) {
  __m256 acc[R][NV];
  load_tile(t, acc);
  const char* w = t.w;
  for (int64_t g = 0; g < t.steps; ++g) {
    __m256i dot[R][NV];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) dot[r][v] = _mm256_set1_epi32(t.corrections[g * kIntRows + r]);
    for (int quad = 0; quad < kGroup / 4; ++quad, w += kStepBytes)
      dot_quad<R, NV>(dot, w, t.x + (g * kGroup + quad * 4) * 2, t.x_stride);
    add_group<R, NV>(t, g, dot, acc);
  }
  store_tile(t, acc);
}

// One group of all k: the integer sums are carried from block to block of k as they are.
template <int R, int NV>
__attribute__((noinline)) void tile_int8_channel(const Tile& t) {
  __m256 acc[R][NV];
  __m256i dot[R][NV];
  load_tile(t, acc);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v)
      dot[r][v] = t.first ? _mm256_set1_epi32(t.corrections[r]) : _mm256_castps_si256(acc[r][v]);
  for (int64_t quad = 0; quad < t.steps; ++quad)
    dot_quad<R, NV>(dot, t.w + quad * kStepBytes, t.x + quad * 8, t.x_stride);
#pragma GCC unroll 8
  for (int v = 0; v < NV; ++v) {
    const __m256 scale = load_f16(t.scales + kVector * v);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(t.x_scales[r]));
      acc[r][v] = t.last ? _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[r][v]), both, _mm256_setzero_ps())
                         : _mm256_castsi256_ps(dot[r][v]);
    }
  }
  store_tile(t, acc);
}

template <int R, int NV>
__attribute__((noinline)) void tile_int4(const Tile& t) {
  const __m256i low_nibbles = _mm256_set1_epi8(15);
  __m256 acc[R][NV];
  load_tile(t, acc);
  const char* w = t.w;
  for (int64_t g = 0; g < t.steps; ++g) {
    __m256i dot[R][NV];  // of 16-bit sums, two for each column
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) dot[r][v] = _mm256_setzero_si256();
    for (int oct = 0; oct < kGroup / 8; ++oct, w += kStepBytes) {
      const char* x = t.x + g * kGroup + oct * 8;
      __m256i low[NV], high[NV];
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) {
        const __m256i both = load_bytes(w + 32 * v);
        low[v] = _mm256_and_si256(both, low_nibbles);
        high[v] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low_nibbles);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const auto* codes = reinterpret_cast<const int32_t*>(x + r * t.x_stride);
        const __m256i x_low = _mm256_set1_epi32(codes[0]), x_high = _mm256_set1_epi32(codes[1]);
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) {
          const __m256i sum = _mm256_add_epi16(_mm256_maddubs_epi16(low[v], x_low),
                                               _mm256_maddubs_epi16(high[v], x_high));
          dot[r][v] = _mm256_add_epi16(dot[r][v], sum);
        }
      }
    }
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v)
        dot[r][v] = _mm256_add_epi32(_mm256_madd_epi16(dot[r][v], ones),
                                     _mm256_set1_epi32(t.corrections[g * kIntRows + r]));
    add_group<R, NV>(t, g, dot, acc);
  }
  store_tile(t, acc);
}

// The tile of each height with its width in vectors: a unit (4 vectors) is walked in strips.
struct FormatTiles {
  TileSteps steps;
  struct {
    TileFunction run;
    int vectors;
  } tiles[6];
};

constexpr FormatTiles kF32Tiles = {{1, kStepBytes, 4, 6, false},
                                   {{tile_f32<1, 4>, 4},
                                    {tile_f32<2, 4>, 4},
                                    {tile_f32<3, 4>, 4},
                                    {tile_f32<4, 2>, 2},
                                    {tile_f32<5, 2>, 2},
                                    {tile_f32<6, 2>, 2}}};
constexpr FormatTiles kBf16Tiles = {
    {2, kStepBytes, 4, 4, false},
    {{tile_bf16<1, 4>, 4}, {tile_bf16<2, 2>, 2}, {tile_bf16<3, 2>, 2}, {tile_bf16<4, 2>, 2}}};
constexpr FormatTiles kInt8ChannelTiles = {
    {4, kStepBytes, 8, kIntRows, false},
    {{tile_int8_channel<1, 4>, 4}, {tile_int8_channel<2, 2>, 2}}};
constexpr FormatTiles kInt8Tiles = {{kGroup, kGroup / 4 * kStepBytes, kGroup * 2, kIntRows, true},
                                    {{tile_int8<1, 4>, 4}, {tile_int8<2, 2>, 2}}};
constexpr FormatTiles kInt4Tiles = {{kGroup, kGroup / 8 * kStepBytes, kGroup, kIntRows, true},
                                    {{tile_int4<1, 4>, 4}, {tile_int4<2, 2>, 2}}};

const FormatTiles& tiles_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32: return kF32Tiles;
    case WeightFormat::bf16: return kBf16Tiles;
    case WeightFormat::int8_channel: return kInt8ChannelTiles;
    case WeightFormat::int8_g32: return kInt8Tiles;
    case WeightFormat::int4_g32: return kInt4Tiles;
  }
  return kF32Tiles;
}

// One tile's rows over the columns of a unit.
void run_strips(const FormatTiles& f, int64_t height, Tile tile) {
  const auto& kind = f.tiles[height - 1];
  for (int v = 0; v < kUnit / kVector && tile.columns > 0; v += kind.vectors) {
    kind.run(tile);
    const int64_t columns = kind.vectors * kVector;
    tile.w += columns * 4;
    tile.out += columns;
    tile.columns -= columns;
    if (tile.bias) tile.bias += columns;
    if (tile.scales) tile.scales += columns;
    if (tile.minima) tile.minima += columns;
  }
}

void multiply(const LinearTask& t, int64_t begin, int64_t end, const char* /*next*/) {
  const FormatTiles& f = tiles_of(t.format);
  for (int64_t unit = begin; unit < end; ++unit)
    pass_blocks(t, f.steps, unit * kUnit, kBlockBytes, nullptr,
                [&](int64_t height, const Tile& tile) { run_strips(f, height, tile); });
}

inline __m256 load_elements(const float* x, int64_t left, int v) {
  return _mm256_maskload_ps(x + kVector * v, column_mask(left, v));
}

// Round to nearest even; a NaN becomes the quiet NaN.
inline __m256i round_bf16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(_mm256_srli_epi32(rounded, 16), _mm256_set1_epi32(0x7fc0), nan);
}

void convert_bf16(const LinearTask& t, int64_t row) {
  const float* x = t.x + row * t.x_stride;
  char* out = t.values + row * t.value_stride;
  for (int64_t k = 0; k < t.k; k += 16) {
    const __m256i low = round_bf16(load_elements(x + k, t.k - k, 0));
    const __m256i high = round_bf16(load_elements(x + k, t.k - k, 1));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2 * k), packed);
  }
}

inline int32_t reduce_max(__m256i x) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}

struct Chunk {  // 32 elements of x
  __m256 values[4];
};
inline Chunk load_chunk(const float* x, int64_t left) {
  Chunk c;
  for (int v = 0; v < 4; ++v) c.values[v] = load_elements(x, left, v);
  return c;
}

inline __m256i larger_magnitude(__m256i bits, const Chunk& c) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  for (int v = 0; v < 4; ++v)
    bits = _mm256_max_epi32(bits, _mm256_and_si256(_mm256_castps_si256(c.values[v]), magnitude));
  return bits;
}

struct Quantiser {
  float scale;
  __m256 inverse;
};
inline Quantiser quantiser(__m256i largest_bits) {
  const float largest =
      _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(reduce_max(largest_bits))));
  return {largest / 127.0f, _mm256_set1_ps(largest >= kLeastMagnitude ? 127.0f / largest : 0.0f)};
}

// The codes of a chunk, ascending; |q| <= 127 except for a NaN, which becomes -128.
__m256i quantise(const Chunk& c, __m256 inverse) {
  __m256i q[4];
  for (int v = 0; v < 4; ++v) q[v] = _mm256_cvtps_epi32(_mm256_mul_ps(c.values[v], inverse));
  const __m256i bytes =
      _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  // Packing interleaves the two 128-bit halves in runs of four codes.
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Stores the codes of chunk `i` as the tiles want them and returns their sum.
int32_t store_codes(const LinearTask& t, int64_t row, int64_t i, __m256i codes) {
  const __m256i low = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(codes));
  const __m256i high = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(codes, 1));
  char* values = t.values + row * t.value_stride;
  if (t.format == WeightFormat::int4_g32) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(values + i * kGroup), codes);
  } else {
    const __m256i even_first = _mm256_setr_epi8(  // k0 k2 k1 k3 of every quad of 16-bit codes
        0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15,  //
        0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    auto* out = reinterpret_cast<__m256i*>(values + i * kGroup * 2);
    _mm256_storeu_si256(out, _mm256_shuffle_epi8(low, even_first));
    _mm256_storeu_si256(out + 1, _mm256_shuffle_epi8(high, even_first));
  }
  const __m256i pairs = _mm256_madd_epi16(_mm256_add_epi16(low, high), _mm256_set1_epi16(1));
  __m128i sums = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  sums = _mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0xb1)));
}

void store_factors(const LinearTask& t, int64_t row, int64_t g, float scale, int32_t sum) {
  const int64_t at = factor_index(t, kIntRows, row, g);
  t.value_scales[at] = scale;
  t.corrections[at] = -t.code_zero * sum;
  t.minimum_factors[at] = scale * static_cast<float>(sum);
}

void convert_groups(const LinearTask& t, int64_t row) {
  for (int64_t g = 0; g < t.groups; ++g) {
    const Chunk chunk = load_chunk(t.x + row * t.x_stride + g * kGroup, t.k - g * kGroup);
    const Quantiser q = quantiser(larger_magnitude(_mm256_setzero_si256(), chunk));
    store_factors(t, row, g, q.scale, store_codes(t, row, g, quantise(chunk, q.inverse)));
  }
}

void convert_whole_row(const LinearTask& t, int64_t row) {
  const float* x = t.x + row * t.x_stride;
  __m256i largest = _mm256_setzero_si256();
  for (int64_t k = 0; k < t.k; k += kGroup)
    largest = larger_magnitude(largest, load_chunk(x + k, t.k - k));
  const Quantiser q = quantiser(largest);
  int32_t sum = 0;
  for (int64_t k = 0; k < t.k; k += kGroup)
    sum += store_codes(t, row, k / kGroup, quantise(load_chunk(x + k, t.k - k), q.inverse));
  store_factors(t, row, 0, q.scale, sum);
}

void convert(const LinearTask& t, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    if (t.format == WeightFormat::bf16)
      convert_bf16(t, row);
    else if (t.format == WeightFormat::int8_channel)
      convert_whole_row(t, row);
    else
      convert_groups(t, row);
  }
}

}  // namespace

LinearKernels linear_kernels_avx2() { return {2, kIntRows, convert, multiply}; }

}  // namespace millrace::cpu
