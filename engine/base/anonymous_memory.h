// AnonymousMemory: a zeroed mapping that costs nothing until it is touched. From the size of a huge
// page on it begins at a multiple of one and asks the system for huge pages: weights, KV blocks and
// activations are read from all over such a mapping, and 4 KiB pages would miss the TLB each time.
// One owner; the memory itself may be used by any thread.
#pragma once

#include <cstddef>
#include <utility>

namespace millrace {

class AnonymousMemory {
 public:
  AnonymousMemory() = default;
  // Empty if the system refuses so much. The size is rounded up to whole pages.
  static AnonymousMemory map(size_t bytes);
  ~AnonymousMemory();
  AnonymousMemory(AnonymousMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AnonymousMemory& operator=(AnonymousMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  explicit operator bool() const { return data_ != nullptr; }
  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace millrace
