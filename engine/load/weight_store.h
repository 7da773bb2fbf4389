// WeightStore: the memory behind every bound weight of one rank, released as a whole. Owned beside
// the Model, outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/base/anonymous_memory.h"

namespace millrace {

class WeightStore {
 public:
  // 64-byte aligned, zeroed. Null if the system has no memory left.
  void* allocate(size_t bytes);
  uint64_t bytes() const { return bytes_; }

 private:
  struct Region {
    AnonymousMemory memory;
    size_t used = 0;
  };
  std::vector<Region> regions_;
  uint64_t bytes_ = 0;
};

}  // namespace millrace
