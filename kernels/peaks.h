// What this machine can do, measured: the denominators that speeds are reported against. Each call
// takes a fraction of a second; for benchmarks only, on an otherwise idle pool.
#pragma once

#include <cstdint>

#include "kernels/core/context.h"
#include "kernels/core/pool.h"

namespace millrace {

struct Rate {
  double median = 0.0;  // a second
  double best = 0.0;
};

// Bytes that all threads of the pool read of their own memory, `bytes` in all (far more than the
// caches hold), over `runs` passes.
Rate measure_stream_read(const Pool& pool, int64_t bytes, int runs);

// The instruction that does most of a kernel's work.
enum class Arithmetic : uint8_t { f32, bf16, int8 };

// Operations (a multiplication and an addition are two) that all threads of the pool do with the
// level's instruction for that arithmetic, in registers. A level without one does it with what its
// kernels use instead.
Rate measure_arithmetic(const Pool& pool, CpuLevel level, Arithmetic arithmetic, int runs);

}  // namespace millrace
