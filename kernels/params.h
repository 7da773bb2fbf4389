// Parameter structs shared by the devices: what ops.cc packs after it has checked the shapes. PODs
// with raw pointers; strides are in elements. Every pointer is device memory.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/core/weight.h"
#include "kernels/ops.h"

namespace millrace {

struct EmbedParams {
  float* out;             // [T, H]
  int64_t out_stride;
  std::span<const int32_t> tokens;
  const LinearWeight* table;
  int64_t first_row;
};

struct ZeroParams {
  float* x;  // [n]
  int64_t n;
};

struct AddRmsNormParams {
  float* out;             // [rows, cols]
  float* residual;        // [rows, cols]
  const float* delta;     // [rows, cols]
  int64_t rows, cols;
  int64_t out_stride, residual_stride, delta_stride;
  const float* weight;    // [cols]
  float eps;
};

struct HeadRmsNormParams {
  float* x;               // [rows, heads, head_dim], heads contiguous within a row
  int64_t rows, heads, head_dim;
  int64_t row_stride;
  const float* weight;    // [head_dim]
  float eps;
};

struct SiluMulParams {
  float* out;             // [rows, cols]
  const float* gate_up;   // [rows, 2 * cols]
  int64_t rows, cols;
  int64_t out_stride, gate_up_stride;
};

struct GatherRowsParams {
  float* out;             // [rows.size(), cols]
  const float* x;
  int64_t cols;
  int64_t out_stride, x_stride;
  std::span<const int32_t> rows;
};

struct LinearParams {
  float* out;             // [rows, n]
  const float* x;         // [rows, k]
  int64_t rows;
  int64_t out_stride, x_stride;
  LinearWeight weight;
  const LinearWeight* next;  // or null
};

struct RopeParams {
  float* q;               // [rows, heads, head_dim], heads contiguous within a row
  float* k;               // [rows, kv_heads, head_dim]
  int64_t rows, heads, kv_heads, head_dim;
  int64_t q_stride, k_stride;
  std::span<const int32_t> positions;  // [rows]
  RopeTable table;
};

struct KvAppendParams {
  KvLayer kv;
  const float* k;         // [rows, kv_heads, head_dim]
  const float* v;
  int64_t rows;
  int64_t k_stride, v_stride;
  std::span<const int32_t> slots;  // [rows]
};

struct AttentionParams {
  float* out;             // [rows, heads, head_dim]
  const float* q;
  int64_t heads;
  int64_t out_stride, q_stride;
  KvLayer kv;
  std::span<const AttentionSequence> sequences;
  float scale;
};

struct SampleParams {
  std::span<SampledToken> sampled;      // [rows]
  float* logits;                        // [rows, vocab]
  int64_t rows, vocab, logits_stride;
  std::span<const SamplingRow> sampling;
  std::span<const int32_t> invalid_tokens;
};

struct ScoreParams {
  std::span<SampledToken> scores;       // [rows]
  const float* logits;                  // [rows, vocab]
  int64_t rows, vocab, logits_stride;
  std::span<const int32_t> targets;     // [rows]
  int num_top;
  std::span<const int32_t> invalid_tokens;
};

}  // namespace millrace
