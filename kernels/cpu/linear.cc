#include "kernels/cpu/linear.h"

#include "kernels/cpu/cpu.h"

namespace millrace::cpu {
namespace {

// Below this many elements converting x costs less than waking the other threads for it.
constexpr int64_t kSerialConversion = 16384;

LinearKernels kernels_of(CpuLevel level) {
  switch (level) {
    case CpuLevel::reference: return linear_kernels_reference();
    case CpuLevel::avx2: return linear_kernels_avx2();
    case CpuLevel::avx512: return linear_kernels_avx512();
  }
  fatal("no such CPU level");
}

int64_t value_bytes(WeightFormat format, const LinearKernels& kernels) {
  switch (format) {
    case WeightFormat::f32: return 4;
    case WeightFormat::bf16: return 2;
    case WeightFormat::int8_channel:
    case WeightFormat::int8_g32: return kernels.int8_code_bytes;
    case WeightFormat::int4_g32: return 1;
  }
  return 4;
}

LinearTask plain_task(const LinearParams& p) {
  const LinearWeight& w = p.weight;
  LinearTask t{};
  t.format = w.format;
  t.panels = w.panels;
  t.scales = w.scales;
  t.minima = w.minima;
  t.bias = w.bias;
  t.panel_bytes = panel_bytes(w.format, w.k);
  t.panel_scales = panel_scale_bytes(w.format, w.k) / 2;
  t.rows = p.rows;
  t.n = w.n;
  t.k = w.k;
  t.group_size = has_groups(w.format) ? kGroup : padded_k(w.format, w.k);
  t.groups = (w.k + t.group_size - 1) / t.group_size;
  t.code_zero = code_zero(w);
  t.x = p.x;
  t.x_stride = p.x_stride;
  t.out = p.out;
  t.out_stride = p.out_stride;
  return t;
}

int64_t num_units(int64_t n) { return (n + kUnit - 1) / kUnit; }

// Where a thread begins to read a weight; null if there is none.
const char* first_weights(const LinearWeight* w, const Pool& pool, int thread_idx) {
  if (w == nullptr) return nullptr;
  const int64_t column = pool.share(num_units(w->n), thread_idx).begin * kUnit;
  return reinterpret_cast<const char*>(w->panels) +
         column / kPanel * panel_bytes(w->format, w->k) + column % kPanel * 4;
}

void take_scratch(LinearTask& t, const LinearKernels& kernels, Scratch& scratch) {
  if (t.format == WeightFormat::f32) {
    t.values = const_cast<char*>(reinterpret_cast<const char*>(t.x));
    t.value_stride = t.x_stride * 4;
    return;
  }
  const int64_t row_bytes = padded_k(t.format, t.k) * value_bytes(t.format, kernels);
  t.value_stride = (row_bytes + 63) / 64 * 64;
  t.values = static_cast<char*>(scratch.bytes(static_cast<size_t>(t.rows * t.value_stride)));
  if (t.format == WeightFormat::bf16) return;
  const int64_t blocks = (t.rows + kernels.factor_rows - 1) / kernels.factor_rows;
  const auto bytes = static_cast<size_t>(blocks * kernels.factor_rows * t.groups) * 4;
  t.value_scales = static_cast<float*>(scratch.bytes(bytes));
  t.corrections = static_cast<int32_t*>(scratch.bytes(bytes));
  t.minimum_factors = static_cast<float*>(scratch.bytes(bytes));
}

}  // namespace

void linear(const Ctx& c, const LinearParams& p) {
  const LinearKernels kernels = kernels_of(c.cpu_level);
  LinearTask t = plain_task(p);
  Scratch scratch(*c.arena);
  take_scratch(t, kernels, scratch);
  if (c.dry_run()) return;
  if (t.format != WeightFormat::f32) {
    const auto convert = [&](int64_t begin, int64_t end) { kernels.convert(t, begin, end); };
    if (t.rows * t.k <= kSerialConversion)
      convert(0, t.rows);
    else
      c.pool->split(t.rows, convert);
  }
  c.pool->run([&](int thread_idx) {
    const Pool::Range units = c.pool->share(num_units(t.n), thread_idx);
    if (units.begin < units.end)
      kernels.multiply(t, units.begin, units.end, first_weights(p.next, *c.pool, thread_idx));
  });
}

}  // namespace millrace::cpu
