// Comm: collectives among the ranks of one tensor-parallel group. One object per rank, used by
// that rank's thread only; all ranks must make the same calls in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace millrace {

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // x[i] = sum over ranks of x[i], added in rank order: every rank gets the same bits.
  virtual void all_reduce_sum(float* x, int64_t n) = 0;
  // out[r * n + i] = x[i] of rank r.
  virtual void all_gather(float* out, const float* x, int64_t n) = 0;
};

// Ranks as threads of this process.
std::vector<std::unique_ptr<Comm>> make_thread_comms(int size);

}  // namespace millrace
