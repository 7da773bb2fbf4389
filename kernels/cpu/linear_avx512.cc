// y = x W^T with AVX-512 (BF16, VNNI). A tile is R rows by NV vectors of 16 columns whose
// accumulators stay in registers while k advances; tiles are separate functions, unrolled over
// rows and vectors,
// because the compiler otherwise keeps the accumulators on the stack.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "kernels/cpu/linear.h"
#include "kernels/cpu/linear_tiles.h"

namespace millrace::cpu {
namespace {

constexpr int kRows = 6;     // 6 x 4 accumulators, 4 weights and a broadcast fit 32 registers
constexpr int kIntRows = 3;  // with groups: an integer and a float accumulator each

// Tiles this low read weights from memory as fast as it gives them. Their loops over k stay rolled:
// the hardware prefetcher follows one load with a short stride better than many with a long one.
constexpr int kStreamingRows = 2;

// Bytes ahead of such a tile that are fetched: the hardware alone does not keep up with the integer
// formats, whose arithmetic leaves gaps between the loads.
constexpr int64_t kStreamAhead = 4096;

// Bytes of a panel that stay in the second-level cache while all rows pass.
constexpr int64_t kBlockBytes = 384 << 10;

// Where to fetch ahead from while the weights at `w` are multiplied.
struct Ahead {
  const char* first;
  const char* second;
  explicit Ahead(const Tile& t) : first(t.w + t.ahead[0]), second(t.w + t.ahead[1]) {}
  inline __attribute__((always_inline)) void fetch(int64_t offset) const {
    _mm_prefetch(first + offset, _MM_HINT_T1);
    _mm_prefetch(second + offset, _MM_HINT_T1);
  }
  inline __attribute__((always_inline)) void advance(int64_t bytes) {
    first += bytes;
    second += bytes;
  }
};

// For tiles that read their weights from memory.
inline __attribute__((always_inline)) void stream_ahead(const char* w) {
#pragma GCC unroll 4
  for (int line = 0; line < kLinesPerStep; ++line)
    _mm_prefetch(w + kStreamAhead + line * kLine, _MM_HINT_T1);
}

inline __mmask16 column_mask(int64_t columns, int v) {
  const int64_t left = columns - 16 * v;
  return static_cast<__mmask16>(left >= 16 ? 0xffff : left <= 0 ? 0 : (1 << left) - 1);
}

template <int R, int NV>
inline __attribute__((always_inline)) void load_tile(const Tile& t, __m512 (&acc)[R][NV]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v)
      acc[r][v] = t.first ? _mm512_setzero_ps()
                          : _mm512_maskz_loadu_ps(column_mask(t.columns, v),
                                                  t.out + r * t.out_stride + 16 * v);
}

template <int R, int NV>
inline __attribute__((always_inline)) void store_tile(const Tile& t, const __m512 (&acc)[R][NV]) {
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v) {
    const __mmask16 mask = column_mask(t.columns, v);
    const __m512 bias = t.bias ? _mm512_maskz_loadu_ps(mask, t.bias + 16 * v) : _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
      _mm512_mask_storeu_ps(t.out + r * t.out_stride + 16 * v, mask,
                            t.bias ? _mm512_add_ps(acc[r][v], bias) : acc[r][v]);
  }
}

template <int R, int NV>
__attribute__((noinline)) void tile_f32(const Tile& t) {
  __m512 acc[R][NV];
  load_tile(t, acc);
  const char* w = t.w;
  Ahead ahead(t);
  for (int64_t k = 0; k < t.steps; ++k, w += kStepBytes) {
    if constexpr (R > kStreamingRows) ahead.fetch(0);
    ahead.advance(kStepBytes);
    __m512 weight[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) weight[v] = _mm512_loadu_ps(w + 64 * v);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512 x = _mm512_set1_ps(reinterpret_cast<const float*>(t.x + r * t.x_stride)[k]);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) acc[r][v] = _mm512_fmadd_ps(x, weight[v], acc[r][v]);
    }
  }
  store_tile(t, acc);
}

template <int R, int NV>
__attribute__((noinline)) void tile_bf16(const Tile& t) {
  __m512 acc[R][NV];
  load_tile(t, acc);
  const char* w = t.w;
  Ahead ahead(t);
  for (int64_t pair = 0; pair < t.steps; ++pair, w += kStepBytes) {
    if constexpr (R > kStreamingRows) ahead.fetch(0);
    ahead.advance(kStepBytes);
    __m512i weight[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) weight[v] = _mm512_loadu_si512(w + 64 * v);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512i x =
          _mm512_set1_epi32(reinterpret_cast<const int32_t*>(t.x + r * t.x_stride)[pair]);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v)
        acc[r][v] = _mm512_dpbf16_ps(acc[r][v], reinterpret_cast<__m512bh>(x),
                                     reinterpret_cast<__m512bh>(weight[v]));
    }
  }
  store_tile(t, acc);
}

// What the tiles of integer weights walk along: a pointer for each stream, so that all addresses in
// the loop are a register and a constant.
template <int R>
struct Streams {
  const char* w;
  const char* x[R];
  const uint16_t* scales;
  const uint16_t* minima;
  const float* x_scales;
  const int32_t* corrections;
  const float* minimum_factors;
  Ahead ahead;

  explicit Streams(const Tile& t)
      : w(t.w),
        scales(t.scales),
        minima(t.minima),
        x_scales(t.x_scales),
        corrections(t.corrections),
        minimum_factors(t.minimum_factors),
        ahead(t) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) x[r] = t.x + r * t.x_stride;
  }
  inline __attribute__((always_inline)) void next_group(int64_t weight_bytes) {
    w += weight_bytes;
    ahead.advance(weight_bytes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) x[r] += kGroup;
    scales += kPanel;
    minima += kPanel;
    x_scales += kIntRows;
    corrections += kIntRows;
    minimum_factors += kIntRows;
  }
};

// The compiler would otherwise keep two copies of each, one of them on the stack.
template <int R, int NV>
inline __attribute__((always_inline)) void keep_in_registers(__m512i (&dot)[R][NV]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) __asm__("" : "+v"(dot[r][v]));
}

// Four more k of a group for all rows: dot += weight (unsigned) * x (signed).
template <int R, int NV>
inline __attribute__((always_inline)) void dot_quad(__m512i (&dot)[R][NV],
                                                    const __m512i (&weight)[NV],
                                                    const char* const (&x)[R], int64_t k) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const __m512i codes = _mm512_set1_epi32(*reinterpret_cast<const int32_t*>(x[r] + k));
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) dot[r][v] = _mm512_dpbusd_epi32(dot[r][v], weight[v], codes);
  }
}

// Loads weights into a register that the compiler keeps: it would rather load again for each row,
// and the loads would then take longer than the products.
inline __attribute__((always_inline)) __m512i load_weights(const char* w) {
  __m512i weights = _mm512_loadu_si512(w);
  __asm__("" : "+v"(weights));
  return weights;
}

// One k step (64 columns by four bytes) of int8 weights: a quad of k.
template <int R, int NV>
inline __attribute__((always_inline)) void dot_int8(__m512i (&dot)[R][NV], const Streams<R>& s,
                                                    int quad) {
  __m512i weight[NV];
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v) weight[v] = load_weights(s.w + quad * kStepBytes + 64 * v);
  dot_quad<R, NV>(dot, weight, s.x, quad * 4);
}

// One k step of int4 weights: a quad of k in the low nibbles, the next one in the high nibbles. The
// bytes are loaded once for each: keeping both halves would need more registers.
template <int R, int NV>
inline __attribute__((always_inline)) void dot_int4(__m512i (&dot)[R][NV], const Streams<R>& s,
                                                    int oct) {
  const __m512i low_nibbles = _mm512_set1_epi8(15);
  const char* w = s.w + oct * kStepBytes;
  __m512i codes[NV];
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v)
    codes[v] = _mm512_and_si512(_mm512_loadu_si512(w + 64 * v), low_nibbles);
  dot_quad<R, NV>(dot, codes, s.x, oct * 8);
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v)
    codes[v] = _mm512_and_si512(_mm512_srli_epi16(_mm512_loadu_si512(w + 64 * v), 4), low_nibbles);
  dot_quad<R, NV>(dot, codes, s.x, oct * 8 + 4);
}

inline __m512 load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// acc += dot * (weight scale * x scale) (+ minimum * minimum factor), for one group.
template <int R, int NV, bool kMinima>
inline __attribute__((always_inline)) void add_group(const Streams<R>& s,
                                                     const __m512i (&dot)[R][NV],
                                                     __m512 (&acc)[R][NV]) {
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v) {
    const __m512 scale = load_f16(s.scales + 16 * v);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(s.x_scales[r]));
      acc[r][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][v]), both, acc[r][v]);
    }
    if constexpr (kMinima) {
      const __m512 minimum = load_f16(s.minima + 16 * v);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
        acc[r][v] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(s.minimum_factors[r]), acc[r][v]);
    }
  }
}

template <int R, int NV>
inline __attribute__((always_inline)) void begin_group(const Streams<R>& s, __m512i (&dot)[R][NV]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) dot[r][v] = _mm512_set1_epi32(s.corrections[r]);
}

template <int R, int NV, bool kMinima>
__attribute__((noinline)) void tile_int8(const Tile& t) {
  __m512 acc[R][NV];
  load_tile(t, acc);
  Streams<R> s(t);
  for (int64_t g = 0; g < t.steps; ++g) {
    __m512i dot[R][NV];
    begin_group<R, NV>(s, dot);
    if constexpr (R <= kStreamingRows) {
#pragma GCC unroll 2
      for (int quad = 0; quad < kGroup / 4; ++quad) {
        stream_ahead(s.w + quad * kStepBytes);
        dot_int8<R, NV>(dot, s, quad);
      }
    } else {
#pragma GCC unroll 8
      for (int quad = 0; quad < kGroup / 4; ++quad) {
        s.ahead.fetch(quad * kStepBytes);
        dot_int8<R, NV>(dot, s, quad);
      }
    }
    add_group<R, NV, kMinima>(s, dot, acc);
    s.next_group(kGroup / 4 * kStepBytes);
  }
  store_tile(t, acc);
}

template <int R, int NV, bool kMinima>
__attribute__((noinline)) void tile_int4(const Tile& t) {
  __m512 acc[R][NV];
  load_tile(t, acc);
  Streams<R> s(t);
  for (int64_t g = 0; g < t.steps; ++g) {
    __m512i dot[R][NV];
    begin_group<R, NV>(s, dot);
    if constexpr (R <= kStreamingRows) {
#pragma GCC unroll 4
      for (int oct = 0; oct < kGroup / 8; ++oct) {
        stream_ahead(s.w + oct * kStepBytes);
        dot_int4<R, NV>(dot, s, oct);
      }
    } else {
#pragma GCC unroll 4
      for (int oct = 0; oct < kGroup / 8; ++oct) {
        s.ahead.fetch(oct * kStepBytes);
        dot_int4<R, NV>(dot, s, oct);
      }
    }
    add_group<R, NV, kMinima>(s, dot, acc);
    s.next_group(kGroup / 8 * kStepBytes);
  }
  store_tile(t, acc);
}

template <int R, int NV>
inline __attribute__((always_inline)) void load_unfinished(const Tile& t, __m512i (&dot)[R][NV]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v)
      dot[r][v] =
          _mm512_maskz_loadu_epi32(column_mask(t.columns, v), t.out + r * t.out_stride + 16 * v);
}

template <int R, int NV>
inline __attribute__((always_inline)) void store_unfinished(const Tile& t,
                                                            const __m512i (&dot)[R][NV]) {
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v)
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
      _mm512_mask_storeu_epi32(t.out + r * t.out_stride + 16 * v, column_mask(t.columns, v),
                               dot[r][v]);
}

template <int R, int NV>
inline __attribute__((always_inline)) void store_scaled(const Tile& t,
                                                        const __m512i (&dot)[R][NV]) {
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v) {
    const __mmask16 mask = column_mask(t.columns, v);
    const __m512 scale = load_f16(t.scales + 16 * v);
    const __m512 bias = t.bias ? _mm512_maskz_loadu_ps(mask, t.bias + 16 * v) : _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(t.x_scales[r]));
      const __m512 sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][v]), both, _mm512_setzero_ps());
      _mm512_mask_storeu_ps(t.out + r * t.out_stride + 16 * v, mask,
                            t.bias ? _mm512_add_ps(sum, bias) : sum);
    }
  }
}

// One group of all k: the integer sums are carried from block to block of k as they are.
template <int R, int NV>
__attribute__((noinline)) void tile_int8_channel(const Tile& t) {
  __m512i dot[R][NV];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) dot[r][v] = _mm512_set1_epi32(t.corrections[r]);
  if (!t.first) load_unfinished(t, dot);
  const char* w = t.w;
  const char* x[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) x[r] = t.x + r * t.x_stride;
  Ahead ahead(t);
  for (int64_t quad = 0; quad < t.steps; ++quad, w += kStepBytes) {
    if constexpr (R > kStreamingRows)
      ahead.fetch(0);
    else
      stream_ahead(w);
    ahead.advance(kStepBytes);
    __m512i weight[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) weight[v] = load_weights(w + 64 * v);
    dot_quad<R, NV>(dot, weight, x, quad * 4);
    keep_in_registers(dot);
  }
  t.last ? store_scaled(t, dot) : store_unfinished(t, dot);
}

struct FormatTiles {
  TileSteps steps;
  TileFunction tiles[2][kRows];  // [half panel, full panel][rows - 1]
};

constexpr FormatTiles kF32Tiles = {{1, kStepBytes, 4, kRows, false},
                                   {{tile_f32<1, 2>, tile_f32<2, 2>, tile_f32<3, 2>, tile_f32<4, 2>,
                                     tile_f32<5, 2>, tile_f32<6, 2>},
                                    {tile_f32<1, 4>, tile_f32<2, 4>, tile_f32<3, 4>, tile_f32<4, 4>,
                                     tile_f32<5, 4>, tile_f32<6, 4>}}};
constexpr FormatTiles kBf16Tiles = {{2, kStepBytes, 4, kRows, false},
                                    {{tile_bf16<1, 2>, tile_bf16<2, 2>, tile_bf16<3, 2>,
                                      tile_bf16<4, 2>, tile_bf16<5, 2>, tile_bf16<6, 2>},
                                     {tile_bf16<1, 4>, tile_bf16<2, 4>, tile_bf16<3, 4>,
                                      tile_bf16<4, 4>, tile_bf16<5, 4>, tile_bf16<6, 4>}}};
constexpr FormatTiles kInt8ChannelTiles = {
    {4, kStepBytes, 4, kRows, false},
    {{tile_int8_channel<1, 2>, tile_int8_channel<2, 2>, tile_int8_channel<3, 2>,
      tile_int8_channel<4, 2>, tile_int8_channel<5, 2>, tile_int8_channel<6, 2>},
     {tile_int8_channel<1, 4>, tile_int8_channel<2, 4>, tile_int8_channel<3, 4>,
      tile_int8_channel<4, 4>, tile_int8_channel<5, 4>, tile_int8_channel<6, 4>}}};
constexpr FormatTiles kInt8Tiles = {
    {kGroup, kGroup / 4 * kStepBytes, kGroup, kIntRows, true},
    {{tile_int8<1, 2, false>, tile_int8<2, 2, false>, tile_int8<3, 2, false>},
     {tile_int8<1, 4, false>, tile_int8<2, 4, false>, tile_int8<3, 4, false>}}};
constexpr FormatTiles kInt8MinimaTiles = {
    {kGroup, kGroup / 4 * kStepBytes, kGroup, kIntRows, true},
    {{tile_int8<1, 2, true>, tile_int8<2, 2, true>, tile_int8<3, 2, true>},
     {tile_int8<1, 4, true>, tile_int8<2, 4, true>, tile_int8<3, 4, true>}}};
constexpr FormatTiles kInt4Tiles = {
    {kGroup, kGroup / 8 * kStepBytes, kGroup, kIntRows, true},
    {{tile_int4<1, 2, false>, tile_int4<2, 2, false>, tile_int4<3, 2, false>},
     {tile_int4<1, 4, false>, tile_int4<2, 4, false>, tile_int4<3, 4, false>}}};
constexpr FormatTiles kInt4MinimaTiles = {
    {kGroup, kGroup / 8 * kStepBytes, kGroup, kIntRows, true},
    {{tile_int4<1, 2, true>, tile_int4<2, 2, true>, tile_int4<3, 2, true>},
     {tile_int4<1, 4, true>, tile_int4<2, 4, true>, tile_int4<3, 4, true>}}};

const FormatTiles& tiles_of(const LinearTask& t) {
  switch (t.format) {
    case WeightFormat::f32: return kF32Tiles;
    case WeightFormat::bf16: return kBf16Tiles;
    case WeightFormat::int8_channel: return kInt8ChannelTiles;
    case WeightFormat::int8_g32: return t.minima ? kInt8MinimaTiles : kInt8Tiles;
    case WeightFormat::int4_g32: return t.minima ? kInt4MinimaTiles : kInt4Tiles;
  }
  return kF32Tiles;
}

void multiply(const LinearTask& t, int64_t begin, int64_t end, const char* next) {
  const FormatTiles& f = tiles_of(t);
  for (int64_t unit = begin, after; unit < end; unit = after) {
    const bool full = unit % 2 == 0 && unit + 1 < end;
    after = unit + (full ? 2 : 1);
    const TileFunction* tiles = f.tiles[full ? 1 : 0];
    pass_blocks(t, f.steps, unit * kUnit, kBlockBytes,
                after < end ? weights_at(t, after * kUnit) : next,
                [&](int64_t height, const Tile& tile) { tiles[height - 1](tile); });
  }
}

inline __mmask16 element_mask(int64_t left) { return column_mask(left, 0); }

void convert_bf16(const LinearTask& t, int64_t row) {
  const float* x = t.x + row * t.x_stride;
  char* out = t.values + row * t.value_stride;
  for (int64_t k = 0; k < t.k; k += 32) {
    const __m512 low = _mm512_maskz_loadu_ps(element_mask(t.k - k), x + k);
    const __m512 high = _mm512_maskz_loadu_ps(element_mask(t.k - k - 16), x + k + 16);
    const __m512bh pairs = _mm512_cvtne2ps_pbh(high, low);
    _mm512_storeu_si512(out + 2 * k, reinterpret_cast<__m512i>(pairs));
  }
}

// Sixteen of the `left` elements at x; zeros beyond.
inline __m512 load_elements(const float* x, int64_t left) {
  return _mm512_maskz_loadu_ps(element_mask(left), x);
}

inline __m512i magnitude_bits(__m512 x) {
  return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

// Sixteen codes. A NaN converts to the least integer and saturates to -128.
inline __m128i quantise(__m512 x, __m512 inverse) {
  return _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(x, inverse)));
}

struct Quantiser {
  float scale;
  __m512 inverse;
};
inline Quantiser quantiser(__m512i largest_bits) {
  const int32_t bits = _mm512_reduce_max_epi32(largest_bits);
  const float largest = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
  return {largest / 127.0f, _mm512_set1_ps(largest >= kLeastMagnitude ? 127.0f / largest : 0.0f)};
}

inline void store_factors(const LinearTask& t, int64_t row, int64_t g, float scale, int32_t sum) {
  const int64_t at = factor_index(t, kIntRows, row, g);
  t.value_scales[at] = scale;
  t.corrections[at] = -t.code_zero * sum;
  t.minimum_factors[at] = scale * static_cast<float>(sum);
}

void convert_group(const LinearTask& t, int64_t row, int64_t g) {
  const float* x = t.x + row * t.x_stride + g * kGroup;
  const int64_t left = t.k - g * kGroup;
  const __m512 low = load_elements(x, left), high = load_elements(x + 16, left - 16);
  const Quantiser q = quantiser(_mm512_max_epi32(magnitude_bits(low), magnitude_bits(high)));
  const __m128i codes_low = quantise(low, q.inverse), codes_high = quantise(high, q.inverse);
  char* out = t.values + row * t.value_stride + g * kGroup;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), codes_low);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16), codes_high);
  store_factors(t, row, g, q.scale,
                _mm512_reduce_add_epi32(_mm512_add_epi32(_mm512_cvtepi8_epi32(codes_low),
                                                         _mm512_cvtepi8_epi32(codes_high))));
}

void convert_whole_row(const LinearTask& t, int64_t row) {
  const float* x = t.x + row * t.x_stride;
  __m512i largest = _mm512_setzero_si512();
  for (int64_t k = 0; k < t.k; k += 16)
    largest = _mm512_max_epi32(largest, magnitude_bits(load_elements(x + k, t.k - k)));
  const Quantiser q = quantiser(largest);
  __m512i sum = _mm512_setzero_si512();
  char* out = t.values + row * t.value_stride;
  for (int64_t k = 0; k < t.k; k += 16) {
    const __m128i codes = quantise(load_elements(x + k, t.k - k), q.inverse);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + k), codes);
    sum = _mm512_add_epi32(sum, _mm512_cvtepi8_epi32(codes));
  }
  store_factors(t, row, 0, q.scale, _mm512_reduce_add_epi32(sum));
}

void convert(const LinearTask& t, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    if (t.format == WeightFormat::bf16)
      convert_bf16(t, row);
    else if (t.format == WeightFormat::int8_channel)
      convert_whole_row(t, row);
    else
      for (int64_t g = 0; g < t.groups; ++g) convert_group(t, row, g);
  }
}

}  // namespace

LinearKernels linear_kernels_avx512() { return {1, kIntRows, convert, multiply}; }

}  // namespace millrace::cpu
