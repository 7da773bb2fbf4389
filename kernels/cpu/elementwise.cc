// The ops that treat rows one by one: divided over threads by rows where there is enough to do.
#include "kernels/cpu/elementwise.h"

#include <algorithm>

#include "kernels/cpu/cpu.h"

namespace millrace::cpu {
namespace {

// Elements below which waking the other threads costs more than they save.
constexpr int64_t kSerialElements = 8192;

ElementwiseKernels kernels_of(CpuLevel level) {
  switch (level) {
    case CpuLevel::reference: return elementwise_kernels_reference();
    case CpuLevel::avx2: return elementwise_kernels_avx2();
    case CpuLevel::avx512: return elementwise_kernels_avx512();
  }
  fatal("no such CPU level");
}

template <class F>
void for_rows(const Ctx& c, int64_t rows, int64_t elements_per_row, F&& f) {
  const auto range = [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row);
  };
  if (rows * elements_per_row <= kSerialElements) return range(0, rows);
  c.pool->split(rows, range);
}

}  // namespace

void embed(const Ctx& c, const EmbedParams& p) {
  if (c.dry_run()) return;
  const LinearWeight& table = *p.table;
  for_rows(c, static_cast<int64_t>(p.tokens.size()), table.k, [&](int64_t row) {
    float* out = p.out + row * p.out_stride;
    const int64_t token = p.tokens[static_cast<size_t>(row)] - p.first_row;
    if (token >= 0 && token < table.n)
      unpack_row(table, token, out);
    else
      std::fill_n(out, table.k, 0.0f);
  });
}

void zero(const Ctx& c, const ZeroParams& p) {
  if (c.dry_run()) return;
  std::fill_n(p.x, p.n, 0.0f);
}

void gather_rows(const Ctx& c, const GatherRowsParams& p) {
  if (c.dry_run()) return;
  for_rows(c, static_cast<int64_t>(p.rows.size()), p.cols, [&](int64_t row) {
    std::copy_n(p.x + p.rows[static_cast<size_t>(row)] * p.x_stride, p.cols,
                p.out + row * p.out_stride);
  });
}

void add_rmsnorm(const Ctx& c, const AddRmsNormParams& p) {
  if (c.dry_run()) return;
  const ElementwiseKernels kernels = kernels_of(c.cpu_level);
  for_rows(c, p.rows, p.cols, [&](int64_t row) {
    kernels.add_rmsnorm(p.out + row * p.out_stride, p.residual + row * p.residual_stride,
                        p.delta + row * p.delta_stride, p.weight, p.cols, p.eps);
  });
}

void head_rmsnorm(const Ctx& c, const HeadRmsNormParams& p) {
  if (c.dry_run()) return;
  const ElementwiseKernels kernels = kernels_of(c.cpu_level);
  for_rows(c, p.rows, p.heads * p.head_dim, [&](int64_t row) {
    for (int64_t head = 0; head < p.heads; ++head)
      kernels.rmsnorm(p.x + row * p.row_stride + head * p.head_dim, p.weight, p.head_dim, p.eps);
  });
}

void silu_mul(const Ctx& c, const SiluMulParams& p) {
  if (c.dry_run()) return;
  const ElementwiseKernels kernels = kernels_of(c.cpu_level);
  for_rows(c, p.rows, p.cols, [&](int64_t row) {
    const float* gate = p.gate_up + row * p.gate_up_stride;
    kernels.silu_mul(p.out + row * p.out_stride, gate, gate + p.cols, p.cols);
  });
}

}  // namespace millrace::cpu
