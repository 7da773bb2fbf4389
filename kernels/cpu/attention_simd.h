// Paged attention over one chunk for a vector type S of vec_avx2.h or vec_avx512.h, where a tile's
// 16 positions are the 16 lanes of S::F. `Dot` says how the level multiplies q with K, and in the
// same way probabilities with V, whose lanes are 16 elements of D:
//   using Q              element that pack_q and pack_p write
//   kUnit, kParts        one loop step covers kUnit elements of D (positions) in kParts
//   multiply-adds kTileStepBytes       bytes of the 16 lanes that one step covers key<part>(k)
//   operand of that part for all 16 lanes query<part>(q)       the row's operand, the same in every
//   lane add(acc, key, query) pack_p(p, begin, end)  probabilities [begin, end), whole tiles, from
//   f32 to Q: element i of Q at p
// The register blocks are separate functions that are never inlined, with every loop over
// registers unrolled: otherwise GCC keeps the accumulators on the stack.
#pragma once

#include <utility>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/vec_exp2.h"

namespace millrace::cpu {
namespace {

// Few rows (decode) are done with a tile sooner than the next one arrives from memory, and the
// pieces that one head reads are too short for the hardware to foresee. So while working on a chunk
// one fetches the next one into L2, evenly spread, as L1 cannot have enough lines under way.
constexpr int kPrefetchRows = 4;
inline void prefetch(const char* p) { __builtin_prefetch(p, 0, 2); }

// scores[r][16 t + lane] = scale * (q_r . K) of kTiles tiles, each dot product in ascending order
// of D with one accumulator.
template <class S, class Dot, int kRows, int kTiles>
[[gnu::noinline]] void score_block(const AttentionChunk& in, int row, int tile) {
  using F = typename S::F;
  F acc[kRows][kTiles];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int t = 0; t < kTiles; ++t) acc[r][t] = S::zero();
  const char* const* k = in.k + tile;
  const char* q = static_cast<const char*>(in.q) + row * in.q_row_bytes;
  const int steps = in.head_dim / Dot::kUnit;
  const char* const* next = in.next_k + tile;
  for (int i = 0; i < steps; ++i) {
    if constexpr (kRows <= kPrefetchRows) {
#pragma GCC unroll 8
      for (int t = 0; t < kTiles; ++t) prefetch(next[t] + i * Dot::kTileStepBytes);
    }
    [&]<int... part>(std::integer_sequence<int, part...>) {
      (
          [&] {
            typename Dot::Key key[kTiles];
#pragma GCC unroll 8
            for (int t = 0; t < kTiles; ++t)
              key[t] = Dot::template key<part>(k[t] + i * Dot::kTileStepBytes);
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
              const auto query = Dot::template query<part>(
                  q + r * in.q_row_bytes + i * Dot::kUnit * int{sizeof(typename Dot::Q)});
#pragma GCC unroll 8
              for (int t = 0; t < kTiles; ++t) acc[r][t] = Dot::add(acc[r][t], key[t], query);
            }
          }(),
          ...);
    }
    (std::make_integer_sequence<int, Dot::kParts>());
  }
  const F scale = S::set(in.scale);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int t = 0; t < kTiles; ++t)
      S::store(in.scores + (row + r) * kAttentionChunk + (tile + t) * kAttentionTile,
               S::mul(acc[r][t], scale));
}

// acc[r][d..] += sum over positions [begin, end), multiples of kUnit, of p[r][position] *
// V[position][d..], for kVectors * 16 columns, in ascending order of positions.
template <class S, class Dot, int kRows, int kVectors>
[[gnu::noinline]] void value_block(float* acc, const AttentionChunk& in, int row, int column,
                                   int begin, int end) {
  using F = typename S::F;
  constexpr int kVectorBytes = Dot::kTileStepBytes;
  const int64_t dim = in.head_dim;
  const int64_t step = dim / 16 * kVectorBytes;  // bytes of kUnit positions
  float* out = acc + row * dim + column;
  const char* p = reinterpret_cast<const char*>(in.scores + row * kAttentionChunk);
  F sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) sum[r][c] = S::load(out + r * dim + c * 16);
  for (int j = begin; j < end;) {
    const int tile = j / kAttentionTile;
    const int stop = end < (tile + 1) * kAttentionTile ? end : (tile + 1) * kAttentionTile;
    const int64_t offset =
        j % kAttentionTile / Dot::kUnit * step + column / 16 * int64_t{kVectorBytes};
    const char* v = in.v[tile] + offset;
    const char* next = in.next_v[tile] + offset;
    for (; j < stop; j += Dot::kUnit, v += step, next += step) {
      if constexpr (kRows <= kPrefetchRows) {
#pragma GCC unroll 8
        for (int c = 0; c < kVectors; ++c) prefetch(next + c * kVectorBytes);
      }
      [&]<int... part>(std::integer_sequence<int, part...>) {
        (
            [&] {
              typename Dot::Key value[kVectors];
#pragma GCC unroll 8
              for (int c = 0; c < kVectors; ++c)
                value[c] = Dot::template key<part>(v + c * kVectorBytes);
#pragma GCC unroll 8
              for (int r = 0; r < kRows; ++r) {
                const auto weight =
                    Dot::template query<part>(p + r * kAttentionChunk * int64_t{sizeof(float)} +
                                              j * int64_t{sizeof(typename Dot::Q)});
#pragma GCC unroll 8
                for (int c = 0; c < kVectors; ++c)
                  sum[r][c] = Dot::add(sum[r][c], value[c], weight);
              }
            }(),
            ...);
      }
      (std::make_integer_sequence<int, Dot::kParts>());
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) S::store(out + r * dim + c * 16, sum[r][c]);
}

template <class S, class Dot, int kRows>
void add_values(float* acc, const AttentionChunk& in, int row, int begin, int end) {
  if (begin >= end) return;
  constexpr int kVectors = S::kWideColumns;
  int column = 0;
  for (; column + kVectors * 16 <= in.head_dim; column += kVectors * 16)
    value_block<S, Dot, kRows, kVectors>(acc, in, row, column, begin, end);
  for (; column < in.head_dim; column += 16)
    value_block<S, Dot, kRows, 1>(acc, in, row, column, begin, end);
}

// One position of a pair whose other half the row does not see: that half's bytes, which may be
// anything, are cleared in a copy.
template <class S, class Dot>
void add_half_pair(float* acc, const AttentionChunk& in, int row, int position) {
  alignas(64) char copy[kMaxHeadDim * 4];
  const int tile = position / kAttentionTile, first = position / 2 * 2;
  const char* v = in.v[tile] + int64_t{first % kAttentionTile} / 2 * in.head_dim * 4;
  for (int d = 0; d < in.head_dim; d += 16) S::keep_half(copy + d * 4, v + d * 4, position % 2);
  // Seen as a tile whose pairs all are this one.
  const char* tiles[kTilesPerChunk];
  tiles[tile] = copy - int64_t{first % kAttentionTile} / 2 * in.head_dim * 4;
  AttentionChunk pair = in;
  pair.v = pair.next_v = tiles;
  add_values<S, Dot, 1>(acc, pair, row, first, first + 2);
}

// All that one row sees of [begin, end).
template <class S, class Dot>
void add_row_values(float* acc, const AttentionChunk& in, int row, int begin, int end) {
  if (begin >= end) return;
  if constexpr (Dot::kUnit == 2) {
    if (begin % 2 != 0) add_half_pair<S, Dot>(acc, in, row, begin++);
    const int whole = end / 2 * 2;
    add_values<S, Dot, 1>(acc, in, row, begin, whole);
    if (begin < end && whole < end) add_half_pair<S, Dot>(acc, in, row, whole);
  } else {
    add_values<S, Dot, 1>(acc, in, row, begin, end);
  }
}

// Replaces one row's scores by 2^(score - max), exactly 0 where the row does not look.
template <class S>
void softmax_row(float* scores, int begin, int end, float* max_out, float* sum_out) {
  using F = typename S::F;
  const int first = begin / kAttentionTile, last = (end - 1) / kAttentionTile;
  const F lowest = S::set(-__builtin_inff());
  F max = lowest;
  for (int t = first; t <= last; ++t) {
    const int at = t * kAttentionTile;
    const F s = S::select(S::lanes(begin - at, end - at), S::load(scores + at), lowest);
    max = S::max(max, s);
  }
  const float highest = S::highest(max);
  F sum = S::zero();
  for (int t = first; t <= last; ++t) {
    const int at = t * kAttentionTile;
    const F power = exp2<S>(S::sub(S::load(scores + at), S::set(highest)));
    const F p = S::select(S::lanes(begin - at, end - at), power, S::zero());
    S::store(scores + at, p);
    sum = S::add(sum, p);
  }
  *max_out = highest;
  *sum_out = S::sum(sum);
}

template <class S, class Dot, int kRows>
void score_rows(const AttentionChunk& in, int first_tile, int end_tile) {
  constexpr int kTiles = S::wide_tiles(kRows);
  int tile = first_tile;
  for (; tile + kTiles <= end_tile; tile += kTiles) score_block<S, Dot, kRows, kTiles>(in, 0, tile);
  if constexpr (kTiles > 1)
    for (; tile < end_tile; ++tile) score_block<S, Dot, kRows, 1>(in, 0, tile);
}

// Whole tiles of probabilities around [begin, end), which are zero outside of it.
template <class Dot>
void pack_row(float* p, int begin, int end) {
  const int first = begin / kAttentionTile * kAttentionTile;
  const int last = (end + kAttentionTile - 1) / kAttentionTile * kAttentionTile;
  Dot::pack_p(p, first, last);
}

template <class S, class Dot, int kRows>
void chunk_rows(const AttentionState& out, const AttentionChunk& in) {
  const auto clamp = [](int x) { return x < 0 ? 0 : x > kAttentionChunk ? kAttentionChunk : x; };
  int begin[kRows], end[kRows];
  int lowest = kAttentionChunk, highest = 0;           // what any row sees
  int common_begin = 0, common_end = kAttentionChunk;  // what every row sees
  for (int r = 0; r < kRows; ++r) {
    begin[r] = clamp(in.begin[r]);
    end[r] = clamp(in.end[r]);
    if (begin[r] < end[r]) {
      lowest = begin[r] < lowest ? begin[r] : lowest;
      highest = end[r] > highest ? end[r] : highest;
    } else {
      end[r] = begin[r];
    }
    common_begin = begin[r] > common_begin ? begin[r] : common_begin;
    common_end = end[r] < common_end ? end[r] : common_end;
  }
  if (lowest < highest) {
    score_rows<S, Dot, kRows>(in, lowest / kAttentionTile,
                              (highest + kAttentionTile - 1) / kAttentionTile);
  }
  for (int r = 0; r < kRows; ++r) {
    out.sum[r] = 0.0f;
    if (begin[r] == end[r]) continue;
    softmax_row<S>(in.scores + r * kAttentionChunk, begin[r], end[r], &out.max[r], &out.sum[r]);
    for (int d = 0; d < in.head_dim; d += 16) S::store(out.acc + r * in.head_dim + d, S::zero());
  }
  for (int r = 0; r < kRows; ++r)
    if (begin[r] < end[r]) pack_row<Dot>(in.scores + r * kAttentionChunk, begin[r], end[r]);
  // The positions that all rows share go through the register block together, the ragged ones
  // before and after row by row; to each row both are the same additions in the same order.
  common_begin = (common_begin + Dot::kUnit - 1) / Dot::kUnit * Dot::kUnit;
  common_end = common_end / Dot::kUnit * Dot::kUnit;
  if (common_begin >= common_end) {
    for (int r = 0; r < kRows; ++r) add_row_values<S, Dot>(out.acc, in, r, begin[r], end[r]);
    return;
  }
  for (int r = 0; r < kRows; ++r) add_row_values<S, Dot>(out.acc, in, r, begin[r], common_begin);
  add_values<S, Dot, kRows>(out.acc, in, 0, common_begin, common_end);
  for (int r = 0; r < kRows; ++r) add_row_values<S, Dot>(out.acc, in, r, common_end, end[r]);
}

template <class S, class Dot>
void attention_chunk(const AttentionState& out, const AttentionChunk& in) {
  static_assert(kAttentionRows == 6);
  switch (in.rows) {
    case 1: return chunk_rows<S, Dot, 1>(out, in);
    case 2: return chunk_rows<S, Dot, 2>(out, in);
    case 3: return chunk_rows<S, Dot, 3>(out, in);
    case 4: return chunk_rows<S, Dot, 4>(out, in);
    case 5: return chunk_rows<S, Dot, 5>(out, in);
    case 6: return chunk_rows<S, Dot, 6>(out, in);
  }
}

template <class S>
void attention_merge(const AttentionState& into, const AttentionState& from, int rows,
                     int head_dim) {
  using F = typename S::F;
  for (int r = 0; r < rows; ++r) {
    if (from.sum[r] == 0.0f) continue;
    float* to = into.acc + int64_t{r} * head_dim;
    const float* add = from.acc + int64_t{r} * head_dim;
    if (into.sum[r] == 0.0f) {
      into.max[r] = from.max[r];
      into.sum[r] = from.sum[r];
      for (int d = 0; d < head_dim; d += 16) S::store(to + d, S::load(add + d));
      continue;
    }
    const float max = into.max[r] > from.max[r] ? into.max[r] : from.max[r];
    const F a = exp2<S>(S::set(into.max[r] - max)), b = exp2<S>(S::set(from.max[r] - max));
    float sum[16];
    S::store(sum, S::fma(b, S::set(from.sum[r]), S::mul(a, S::set(into.sum[r]))));
    into.max[r] = max;
    into.sum[r] = sum[0];
    for (int d = 0; d < head_dim; d += 16)
      S::store(to + d, S::fma(b, S::load(add + d), S::mul(a, S::load(to + d))));
  }
}

template <class S>
void attention_finish(float* out, const float* acc, float sum, int head_dim) {
  const typename S::F scale = S::set(1.0f / sum);
  for (int d = 0; d < head_dim; d += 16) S::store(out + d, S::mul(S::load(acc + d), scale));
}

template <class S, class Dot>
AttentionKernels attention_kernels(void (*pack_q)(void*, const float*, int64_t)) {
  return {pack_q, attention_chunk<S, Dot>, attention_merge<S>, attention_finish<S>};
}

}  // namespace
}  // namespace millrace::cpu
