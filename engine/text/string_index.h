// StringIndex: which id has this string? An open-addressing table of ids over strings that their
// owner keeps, so that an index costs 4 to 8 bytes an entry. Immutable after filling; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace millrace {

inline uint64_t hash_bytes(std::string_view text) {
  uint64_t hash = 0x9E3779B97F4A7C15u ^ text.size();
  const char* p = text.data();
  size_t left = text.size();
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
  };
  while (left >= 8) {
    uint64_t word;
    __builtin_memcpy(&word, p, 8);
    mix(word);
    p += 8;
    left -= 8;
  }
  uint64_t word = 0;
  __builtin_memcpy(&word, p, left);
  mix(word);
  return hash;
}

class StringIndex {
 public:
  void reserve(size_t count) {
    size_t size = 16;
    while (size < count + count / 2) size *= 2;
    slots_.assign(size, -1);
  }

  // `string_of(id)` gives the string of an id that was inserted. At most as many insertions as were
  // reserved. Keeps the first id of a string; false if it was there already.
  template <typename StringOf>
  bool insert(int32_t id, StringOf string_of) {
    const std::string_view text = string_of(id);
    for (size_t slot = hash_bytes(text);; ++slot) {
      int32_t& entry = slots_[slot & (slots_.size() - 1)];
      if (entry < 0) {
        entry = id;
        return true;
      }
      if (string_of(entry) == text) return false;
    }
  }

  template <typename StringOf>
  int32_t find(std::string_view text, StringOf string_of) const {
    if (slots_.empty()) return -1;
    for (size_t slot = hash_bytes(text);; ++slot) {
      const int32_t entry = slots_[slot & (slots_.size() - 1)];
      if (entry < 0 || string_of(entry) == text) return entry;
    }
  }

 private:
  std::vector<int32_t> slots_;
};

}  // namespace millrace
