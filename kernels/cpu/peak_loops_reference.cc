#include "kernels/cpu/peak_loops.h"

namespace millrace::cpu {
namespace {

constexpr int kChains = 16;

double scalar_loop(int64_t steps) {
  float sums[kChains] = {};
  volatile float source = 1.0f;
  const float x = source;
  for (int64_t i = 0; i < steps; ++i)
    for (float& s : sums) s = s * x + x;
  volatile float sink = 0.0f;
  for (const float s : sums) sink = sink + s;
  return 2.0 * kChains * static_cast<double>(steps);
}

}  // namespace

PeakLoops peak_loops_reference() { return {scalar_loop, scalar_loop, scalar_loop}; }

}  // namespace millrace::cpu
