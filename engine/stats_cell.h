// StatsCell: one writer publishes a plain value, any thread reads a consistent copy; nobody takes a
// lock. A sequence number is odd while the value changes, and a reader that saw it odd or changed
// reads again.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace millrace {

template <typename T>
class StatsCell {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(uint64_t) == 0);

 public:
  // The one writer.
  void write(const T& value) {
    Words words;
    std::memcpy(words.data(), &value, sizeof(T));
    const uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    // Release on every word: whoever sees a new word sees the odd version, too.
    for (size_t i = 0; i < words.size(); ++i) words_[i].store(words[i], std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
  }

  // Any thread.
  T read() const {
    Words words;
    uint64_t before, after;
    do {
      before = version_.load(std::memory_order_acquire);
      for (size_t i = 0; i < words.size(); ++i)
        words[i] = words_[i].load(std::memory_order_acquire);
      after = version_.load(std::memory_order_relaxed);
    } while (before != after || before % 2 != 0);
    T value;
    std::memcpy(static_cast<void*>(&value), words.data(), sizeof(T));
    return value;
  }

 private:
  using Words = std::array<uint64_t, sizeof(T) / sizeof(uint64_t)>;
  std::atomic<uint64_t> version_ = 0;
  std::array<std::atomic<uint64_t>, sizeof(T) / sizeof(uint64_t)> words_{};
};

}  // namespace millrace
