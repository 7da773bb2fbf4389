// Loops that keep a level's arithmetic units full, for measuring their peak: `steps` rounds over
// independent accumulators. They return the operations done.
#pragma once

#include <cstdint>

namespace millrace::cpu {

struct PeakLoops {
  double (*f32)(int64_t steps);
  double (*bf16)(int64_t steps);
  double (*int8)(int64_t steps);
};

PeakLoops peak_loops_reference();
PeakLoops peak_loops_avx2();
PeakLoops peak_loops_avx512();

}  // namespace millrace::cpu
