#include "kernels/cpu/cpu.h"
#include "kernels/cpu/row_kernels.h"

namespace millrace::cpu {
namespace {

void rotate_heads(const RowKernels& kernels, float* x, int64_t heads, int64_t head_dim,
                  const float* cos, const float* sin, int64_t half) {
  for (int64_t h = 0; h < heads; ++h) kernels.rotate(x + h * head_dim, cos, sin, half);
}

}  // namespace

void rope(const Ctx& c, const RopeParams& p) {
  if (c.dry_run()) return;
  const RowKernels& kernels = row_kernels(c.cpu_level);
  const int64_t half = p.table.rotary_dim / 2;
  c.pool->split(p.rows, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t position = p.positions[static_cast<size_t>(t)];
      MR_CHECK_OP(position, >=, 0);
      MR_CHECK_OP(position, <, p.table.positions);
      const float* cos = p.table.cos + position * half;
      const float* sin = p.table.sin + position * half;
      rotate_heads(kernels, p.q + t * p.q_stride, p.heads, p.head_dim, cos, sin, half);
      rotate_heads(kernels, p.k + t * p.k_stride, p.kv_heads, p.head_dim, cos, sin, half);
    }
  });
}

}  // namespace millrace::cpu
