// The readable attention: one row and one position at a time, same chunks and states as the vector
// levels (kernels/cpu/attention.h).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/attention.h"

namespace millrace::cpu {
namespace {

template <DType kv>
using Element = std::conditional_t<kv == DType::bf16, bf16, float>;

template <DType kv>
float element(const char* base, int64_t i) {
  Element<kv> x;
  std::memcpy(&x, base + i * static_cast<int64_t>(sizeof(x)), sizeof(x));
  return to_float(x);
}

// Index of element d of position `lane` in a K tile (kernels/ops.h, KvLayer).
template <DType kv>
int64_t key_index(int lane, int d) {
  return kv == DType::bf16 ? (d / 2 * kAttentionTile + lane) * 2 + d % 2
                           : d * kAttentionTile + lane;
}

// The same in a V tile.
template <DType kv>
int64_t value_index(int lane, int d, int dim) {
  return kv == DType::bf16 ? (int64_t{lane / 2} * dim + d) * 2 + lane % 2 : int64_t{lane} * dim + d;
}

template <DType kv>
void pack_q(void* out, const float* q, int64_t n) {
  float* to = static_cast<float*>(out);
  for (int64_t d = 0; d < n; ++d) to[d] = kv == DType::bf16 ? to_float(to_bf16(q[d])) : q[d];
}

template <DType kv>
void chunk(const AttentionState& out, const AttentionChunk& in) {
  const int dim = in.head_dim;
  for (int r = 0; r < in.rows; ++r) {
    const int begin = std::clamp(in.begin[r], 0, kAttentionChunk);
    const int end = std::clamp(in.end[r], 0, kAttentionChunk);
    out.sum[r] = 0.0f;
    if (begin >= end) continue;
    const char* q = static_cast<const char*>(in.q) + r * in.q_row_bytes;
    float max = -std::numeric_limits<float>::infinity();
    for (int j = begin; j < end; ++j) {
      const char* k = in.k[j / kAttentionTile];
      float dot = 0.0f;
      for (int d = 0; d < dim; ++d)
        dot += element<DType::f32>(q, d) * element<kv>(k, key_index<kv>(j % kAttentionTile, d));
      in.scores[j] = dot * in.scale;
      max = std::max(max, in.scores[j]);
    }
    float* acc = out.acc + int64_t{r} * dim;
    std::fill_n(acc, dim, 0.0f);
    for (int j = begin; j < end; ++j) {
      const float p = std::exp2(in.scores[j] - max);
      const char* v = in.v[j / kAttentionTile];
      out.sum[r] += p;
      for (int d = 0; d < dim; ++d)
        acc[d] += p * element<kv>(v, value_index<kv>(j % kAttentionTile, d, dim));
    }
    out.max[r] = max;
  }
}

void merge(const AttentionState& into, const AttentionState& from, int rows, int dim) {
  for (int r = 0; r < rows; ++r) {
    if (from.sum[r] == 0.0f) continue;
    float* to = into.acc + int64_t{r} * dim;
    const float* add = from.acc + int64_t{r} * dim;
    if (into.sum[r] == 0.0f) {
      into.max[r] = from.max[r];
      into.sum[r] = from.sum[r];
      std::copy_n(add, dim, to);
      continue;
    }
    const float max = std::max(into.max[r], from.max[r]);
    const float a = std::exp2(into.max[r] - max), b = std::exp2(from.max[r] - max);
    into.max[r] = max;
    into.sum[r] = into.sum[r] * a + from.sum[r] * b;
    for (int d = 0; d < dim; ++d) to[d] = to[d] * a + add[d] * b;
  }
}

void finish(float* out, const float* acc, float sum, int dim) {
  for (int d = 0; d < dim; ++d) out[d] = acc[d] / sum;
}

}  // namespace

AttentionKernels attention_kernels_reference(DType kv) {
  return kv == DType::bf16
             ? AttentionKernels{pack_q<DType::bf16>, chunk<DType::bf16>, merge, finish}
             : AttentionKernels{pack_q<DType::f32>, chunk<DType::f32>, merge, finish};
}

}  // namespace millrace::cpu
