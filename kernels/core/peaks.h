// What this machine can do, measured: the denominators that speeds are reported against. Takes a
// fraction of a second and some memory; called by benchmarks only, on an otherwise idle pool.
#pragma once

#include <cstdint>

#include "kernels/core/pool.h"

namespace millrace {

// Best and median rate in bytes per second of all pool threads reading `bytes` of their own memory
// (far larger than the caches), over `runs` passes.
struct StreamRate {
  double median = 0.0;
  double best = 0.0;
};
StreamRate measure_stream_read(const Pool& pool, int64_t bytes, int runs);

}  // namespace millrace
