// How paged attention is divided, and what an instruction-set level provides for it.
//
// A row is one query head of one token. A row sees the positions [begin, end) of its sequence
// (causal, and perhaps a sliding window). Positions are grouped in chunks of kAttentionChunk fixed
// at absolute positions. A chunk gives each row that sees any of it a partial softmax state
//   max = max of the scores, sum = sum of 2^(score - max), acc[D] = sum of 2^(score - max) v
// with scores in units of log2; states are merged in ascending order of chunks. This holds
// whatever computes them, so neither the batch, nor how a prompt is cut, nor the number of threads
// can change a bit of a row. Within a chunk every reduction runs over ascending positions with
// lanes at absolute positions; what a row does not see takes no part in its arithmetic at all, so
// the contents of unused slots are free to be anything.
//
// With bf16 KV the query is rounded to bf16 before the dot product, at every level, and positions
// enter acc in pairs (2i, 2i + 1), of which a row at the edge of what it sees takes one half. The
// avx512 level rounds the probabilities to bf16 for this, not for the sum.
#pragma once

#include <cstdint>

#include "kernels/core/context.h"
#include "kernels/core/dtype.h"

namespace millrace::cpu {

inline constexpr int kAttentionTile = 16;    // positions in one vector of scores
inline constexpr int kAttentionChunk = 256;  // positions in one partial state
inline constexpr int kTilesPerChunk = kAttentionChunk / kAttentionTile;
inline constexpr int kAttentionRows = 6;  // rows that one call of `chunk` takes at most
inline constexpr int kMaxHeadDim = 256;

// Softmax states of consecutive rows. A row whose sum is 0 has seen nothing: its max and acc are
// meaningless.
struct AttentionState {
  float* max;  // [rows]
  float* sum;  // [rows]
  float* acc;  // [rows, D]
};

struct AttentionChunk {
  const void* q;  // [rows, D] as written by pack_q
  int64_t q_row_bytes;
  const int32_t* begin;  // [rows] what each row sees, relative to the chunk's first position
  const int32_t* end;    // [rows] (may lie outside of the chunk)
  int rows;              // 1..kAttentionRows
  int head_dim;          // a multiple of 16
  float scale;           // of the dot product, times log2(e)
  const char* const* k;  // [kTilesPerChunk] K of each tile; null where no row looks
  const char* const* v;  // [kTilesPerChunk] V of each tile
  // The same of what this thread will work on next, for fetching ahead; any address is allowed.
  const char* const* next_k;
  const char* const* next_v;
  float* scores;  // scratch [kAttentionRows, kAttentionChunk]
};

struct AttentionKernels {
  // One row of q, from f32 to what `chunk` wants; at most 4 bytes an element.
  void (*pack_q)(void* out, const float* q, int64_t head_dim);
  void (*chunk)(const AttentionState& out, const AttentionChunk& in);
  // into += from, where `from` covers the positions right after those of `into`.
  void (*merge)(const AttentionState& into, const AttentionState& from, int rows, int head_dim);
  // out = acc / sum of one row.
  void (*finish)(float* out, const float* acc, float sum, int head_dim);
};

AttentionKernels attention_kernels_reference(DType kv);
AttentionKernels attention_kernels_avx2(DType kv);
AttentionKernels attention_kernels_avx512(DType kv);

}  // namespace millrace::cpu
