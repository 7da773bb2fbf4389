// Writes new keys and values into the paged cache (layout: kernels/ops.h, KvLayer).
#include <cstring>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/row_kernels.h"

namespace millrace::cpu {
namespace {

// Spreads one key over its column of a token-minor tile: unit i goes to tile[i][lane]. A unit is
// four bytes: a pair of bf16 or one f32.
void store_key(char* tile, int lane, const void* key, int64_t units) {
  const char* from = static_cast<const char*>(key);
  char* to = tile + lane * 4;
  for (int64_t i = 0; i < units; ++i) std::memcpy(to + i * kAttentionTile * 4, from + i * 4, 4);
}

// The same for one value and its row of a pair of tokens: element i goes to pair[i][half].
void store_value(char* pair, int half, const uint16_t* value, int64_t n) {
  char* to = pair + half * 2;
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * 4, value + i, 2);
}

void append_token(const RowKernels& kernels, const KvLayer& kv, const float* k, const float* v,
                  int32_t slot) {
  const int64_t dim = kv.head_dim, element = static_cast<int64_t>(dtype_bytes(kv.dtype));
  const int64_t head_bytes = kv.block_size * dim * element;
  const int offset = slot % kv.block_size;
  char* block = kv.data + slot / kv.block_size * kv.block_stride;
  for (int h = 0; h < kv.kv_heads; ++h) {
    char* keys = block + h * head_bytes;
    char* tile = keys + offset / kAttentionTile * kAttentionTile * dim * element;
    char* values = keys + kv.kv_heads * head_bytes;
    if (kv.dtype == DType::bf16) {
      uint16_t rounded[kMaxHeadDim];
      kernels.to_bf16(rounded, k + h * dim, dim);
      store_key(tile, offset % kAttentionTile, rounded, dim / 2);
      kernels.to_bf16(rounded, v + h * dim, dim);
      store_value(values + offset / 2 * dim * 4, offset % 2, rounded, dim);
    } else {
      store_key(tile, offset % kAttentionTile, k + h * dim, dim);
      std::memcpy(values + offset * dim * 4, v + h * dim, static_cast<size_t>(dim) * sizeof(float));
    }
  }
}

}  // namespace

void kv_append(const Ctx& c, const KvAppendParams& p) {
  MR_CHECK(p.kv.dtype == DType::bf16 || p.kv.dtype == DType::f32);
  MR_CHECK_OP(p.kv.head_dim, <=, kMaxHeadDim);
  MR_CHECK_OP(p.kv.head_dim % 2, ==, 0);
  MR_CHECK_OP(p.kv.block_size % kAttentionTile, ==, 0);
  if (c.dry_run()) return;
  const RowKernels& kernels = row_kernels(c.cpu_level);
  c.pool->split(p.rows, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int32_t slot = p.slots[static_cast<size_t>(t)];
      MR_CHECK_OP(slot, >=, 0);
      append_token(kernels, p.kv, p.k + t * p.k_stride, p.v + t * p.v_stride, slot);
    }
  });
}

}  // namespace millrace::cpu
