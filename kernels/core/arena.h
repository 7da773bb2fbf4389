// Arena: one aligned buffer from which a forward pass takes its temporaries, stack fashion.
// A measuring arena hands out null pointers and only records the high-water mark; a dry run over
// one tells how large the real one must be. Used by the one thread that runs the step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernels/core/tensor.h"

namespace millrace {

class Arena {
 public:
  static constexpr size_t kAlignment = 64;

  Arena() = default;  // measuring
  Arena(void* memory, size_t bytes) : memory_(static_cast<char*>(memory)), capacity_(bytes) {}

  bool measuring() const { return memory_ == nullptr; }
  size_t used() const { return used_; }
  size_t high_water() const { return high_water_; }

  void* allocate(size_t bytes) {
    const size_t begin = used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    high_water_ = std::max(high_water_, used_);
    if (measuring()) return nullptr;
    MR_CHECK_OP(used_, <=, capacity_);
    return memory_ + begin;
  }
  void release_to(size_t mark) { used_ = mark; }

 private:
  char* memory_ = nullptr;
  size_t capacity_ = 0;
  size_t used_ = 0;
  size_t high_water_ = 0;
};

// Temporaries of one scope; all are released together at its end.
class Scratch {
 public:
  explicit Scratch(Arena& arena) : arena_(arena), mark_(arena.used()) {}
  ~Scratch() { arena_.release_to(mark_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  Tensor operator()(std::initializer_list<int64_t> shape, DType type = DType::f32) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    return Tensor(arena_.allocate(static_cast<size_t>(n) * dtype_bytes(type)), type, shape);
  }
  void* bytes(size_t n) { return arena_.allocate(n); }

 private:
  Arena& arena_;
  size_t mark_;
};

}  // namespace millrace
