// BpeMerger: the merge rules of a BPE vocabulary, and the loop that applies them: always the pair
// of lowest rank, the leftmost among equals. O(n log n) in the symbols of a word. Filled by a
// loader, immutable afterwards; any thread, each with its own Workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/base/token.h"

namespace millrace {

struct BpeSymbol {
  Token id = -1;       // negative: takes part in no merge
  uint32_t begin = 0;  // first byte in the word; the symbol ends where the next one begins
};

class BpeMerger {
 public:
  struct Workspace {
    std::vector<uint32_t> ranks;  // of the pair (i, next of i)
    std::vector<uint32_t> next, previous;
    std::vector<uint64_t> heap;  // rank << 32 | index of the left symbol
  };

  void reserve(size_t num_merges);
  // Adding a pair again keeps the lower rank. Beyond the reserved number the table grows.
  void add(Token left, Token right, uint32_t rank, Token merged);

  void merge(std::vector<BpeSymbol>& symbols, Workspace& workspace) const;

 private:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Rule {
    Token left = -1, right = -1;
    uint32_t rank = kNoRank;
    Token merged = -1;
  };
  const Rule* find(Token left, Token right) const;
  uint32_t rank_of(Token left, Token right) const {
    const Rule* const rule = find(left, right);
    return rule == nullptr ? kNoRank : rule->rank;
  }
  void grow(size_t num_slots);
  void merge_short(std::vector<BpeSymbol>& symbols, Workspace& workspace) const;
  void merge_long(std::vector<BpeSymbol>& symbols, Workspace& workspace) const;

  std::vector<Rule> slots_;  // open addressing, a power of two
  size_t num_rules_ = 0;
};

}  // namespace millrace
