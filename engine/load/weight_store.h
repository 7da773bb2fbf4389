// WeightStore: the memory behind every bound weight of one rank. Anonymous memory, huge pages where
// the system offers them, released as a whole. Owned beside the Model, outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace {

class WeightStore {
 public:
  WeightStore() = default;
  ~WeightStore();
  WeightStore(WeightStore&&) noexcept;
  WeightStore& operator=(WeightStore&&) noexcept;

  // 64-byte aligned, zeroed. Null if the system has no memory left.
  void* allocate(size_t bytes);
  uint64_t bytes() const { return bytes_; }

 private:
  struct Region {
    char* memory;
    size_t size, used;
  };
  std::vector<Region> regions_;
  uint64_t bytes_ = 0;
};

}  // namespace millrace
