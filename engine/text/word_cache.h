// WordCache: the ids of recently seen short words, direct-mapped and of fixed size. Owned by one
// encoding at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "engine/base/token.h"
#include "engine/text/string_index.h"

namespace millrace {

class WordCache {
 public:
  static constexpr size_t kMaxBytes = 22;
  static constexpr size_t kMaxTokens = 10;

  // Where `word` is or would be. Words longer than kMaxBytes are not cached.
  struct Entry {
    uint8_t size = 0;  // bytes of the word; 0: free
    uint8_t num_tokens = 0;
    char word[kMaxBytes];
    Token tokens[kMaxTokens];

    bool holds(std::string_view text) const {
      return size == text.size() && std::memcmp(word, text.data(), size) == 0;
    }
    std::span<const Token> ids() const { return {tokens, num_tokens}; }
    void fill(std::string_view text, std::span<const Token> ids) {
      if (ids.size() > kMaxTokens) return;
      size = static_cast<uint8_t>(text.size());
      num_tokens = static_cast<uint8_t>(ids.size());
      std::memcpy(word, text.data(), text.size());
      std::copy(ids.begin(), ids.end(), tokens);
    }
  };
  static_assert(sizeof(Entry) == 64);

  Entry& entry(std::string_view word) {
    if (entries_.empty()) entries_.resize(kNumEntries);
    const uint64_t hash = hash_bytes(word);
    return entries_[(hash ^ hash >> 17) & (kNumEntries - 1)];
  }

 private:
  static constexpr size_t kNumEntries = 4096;  // 256 KiB
  std::vector<Entry> entries_;
};

}  // namespace millrace
