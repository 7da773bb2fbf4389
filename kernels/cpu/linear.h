// How y = x W^T + bias is divided, and what an instruction-set level provides for it.
//
// The unit of work is half a panel (32 output columns): threads get contiguous ranges of units, and
// within a unit every row of x passes while the weights are in cache. An output element has one
// chain of f32 additions in ascending k (integer formats: ascending groups, each an exact integer
// dot product; int8_channel is a single group), beginning at zero and ending with the bias. Tiles
// of rows, blocks of k and the split over threads only decide when a link of that chain is
// computed, never its operands, so the bits of a row are the same for any number of rows and
// threads. Where k is cut into blocks the chain is carried through `out`, as f32 or as the integer
// of an unfinished group.
#pragma once

#include <cstdint>

#include "kernels/core/weight.h"

namespace millrace::cpu {

inline constexpr int64_t kUnit = 32;  // columns

// Everything a level needs, as plain values: its files must not call inline functions of shared
// headers, of which the linker could then keep the copy that needs the instruction set.
struct LinearTask {
  WeightFormat format;
  const uint8_t* panels;
  const uint16_t* scales;  // f16, as in weight.h
  const uint16_t* minima;  // or null
  const float* bias;       // or null
  int64_t panel_bytes;
  int64_t panel_scales;  // f16 values
  int64_t rows, n, k;
  int64_t group_size;  // kGroup, or all of k (padded)
  int64_t groups;
  const float* x;
  int64_t x_stride;
  float* out;
  int64_t out_stride;
  int32_t code_zero;  // the weight code that stands for 0; 0 where minima say what codes mean
  // What the kernels multiply: x itself (f32), or x converted once. Integer formats: int8 codes
  // (zero beyond k), and with s = sum of a group's codes the factors of each row and group: its
  // scale, corrections = -code_zero * s, minimum_factors = scale * s (if there are minima).
  char* values;
  int64_t value_stride;  // bytes; a multiple of 64 unless f32
  float* value_scales;   // [ceil(rows / factor_rows), groups, factor_rows], as the next two
  int32_t* corrections;
  float* minimum_factors;
};

struct LinearKernels {
  int int8_code_bytes;  // of one activation code for int8 weights
  int factor_rows;      // consecutive rows whose factors of a group lie side by side
  // Fills values etc. of rows [begin, end). Not called for f32 weights.
  void (*convert)(const LinearTask& t, int64_t begin, int64_t end);
  // Output columns of units [begin, end), all rows. `next`: what this thread will read of the
  // weight that follows, to be fetched ahead; or null.
  void (*multiply)(const LinearTask& t, int64_t begin, int64_t end, const char* next);
};

// A group of x is scaled by its largest magnitude, found by comparing bits so that a NaN counts as
// the largest and reaches the output. Below this magnitude the inverse would overflow; such a
// group becomes zero.
inline constexpr float kLeastMagnitude = 1e-36f;

LinearKernels linear_kernels_reference();
LinearKernels linear_kernels_avx2();
LinearKernels linear_kernels_avx512();

}  // namespace millrace::cpu
