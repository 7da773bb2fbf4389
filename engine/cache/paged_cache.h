// PagedCache: the bookkeeping of the paged KV cache, without its memory: one block pool per group
// of layers, the prefix index over all of them, and the page table of each sequence. Knows tokens
// and ids, never requests. Owned by the scheduler; engine thread only, except where noted.
//
// A full-attention group needs the blocks of all positions. A group with window W needs, to compute
// position p, the blocks of (p - W, p] only; those wholly before it are given back.
//
//   positions  0 ........ p-W | p-W+1 ......... p-1 | p .... end-1 | end ...
//   window     given back     | read               | written      | not yet there
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/cache/block_pool.h"
#include "engine/cache/prefix_chain.h"
#include "engine/cache/prefix_index.h"

namespace millrace {

struct CacheGroup {
  int window = 0;  // tokens, the current one included; 0: full attention
  int64_t num_blocks = 0;
};

struct PagedCacheOptions {
  int block_size = 16;  // tokens
  std::vector<CacheGroup> groups;
  bool prefix_caching = true;
};

// The blocks of one sequence in every group. Gives everything back when it goes.
class PageTable {
 public:
  PageTable() = default;
  PageTable(PageTable&&) = default;
  PageTable& operator=(PageTable&& other) noexcept;
  ~PageTable() { clear(); }

  // Block of position p: blocks(g)[p / block_size]; -1 where the window has passed.
  const std::vector<BlockId>& blocks(int group) const {
    return groups_[static_cast<size_t>(group)].ids;
  }
  void clear();

 private:
  friend class PagedCache;
  struct Group {
    std::vector<BlockId> ids;
    std::vector<BlockRef> refs;  // parallel to ids
    int64_t first = 0;           // blocks before it are given back
  };
  std::vector<Group> groups_;
  PrefixIndex::Pin tip_;   // node of the last committed block
  int64_t committed_ = 0;  // full blocks whose content is in the index
};

class PagedCache {
 public:
  explicit PagedCache(PagedCacheOptions options);

  // The longest sequence that an empty cache can hold. Any thread.
  int64_t capacity_tokens() const { return capacity_tokens_; }

  // The longest reusable prefix of `tokens` that ends at most at `limit`. Valid until the cache
  // changes.
  struct Match {
    std::vector<PrefixIndex::Node*> nodes;  // one per block
    int64_t num_blocks() const { return static_cast<int64_t>(nodes.size()); }
  };
  Match match(const PrefixChain& chain, std::span<const Token> tokens, std::string_view salt,
              int64_t limit) const;
  // Can a sequence that starts from `match` be carried to `end` tokens, with `spare` blocks per
  // group left over? A window group needs no more than its window at a time.
  bool fits(const Match& match, int64_t end, int64_t spare) const;
  PageTable open(const Match& match);

  // Full groups may be grown ahead of window groups, to reserve what a sequence will need.
  enum class Groups : uint8_t { full, all };
  // The end up to which `table` can grow now.
  int64_t growable_end(const PageTable& table, Groups which) const;
  // Adds blocks for positions before `end`, which is at most growable_end.
  void grow(PageTable& table, int64_t end, Groups which);
  // Positions before `computed` are in the cache and no step that reads before it is in flight:
  // full blocks become reusable, and windows move on.
  void commit(PageTable& table, const PrefixChain& chain, std::span<const Token> tokens,
              std::string_view salt, int64_t computed);

  // Forgets every reusable block that is not in use.
  void reset();

  int64_t total() const;
  int64_t used() const;
  int64_t cached() const;
  int64_t num_nodes() const { return index_.num_nodes(); }
  int num_groups() const { return static_cast<int>(pools_.size()); }

 private:
  int64_t blocks_for(int64_t tokens) const {
    return (tokens + options_.block_size - 1) / options_.block_size;
  }
  // The most blocks that one row of a window group touches.
  int64_t window_span(int window) const { return blocks_for(window - 1) + 1; }
  // First block that positions from `position` on still read.
  int64_t first_needed(const CacheGroup& group, int64_t position) const;
  void index_block(PageTable& table, const PrefixIndex::Key& key);

  const PagedCacheOptions options_;
  PrefixIndex index_;  // outlives the pools, which report evictions to it
  std::vector<std::unique_ptr<BlockPool>> pools_;  // [groups]
  int64_t capacity_tokens_ = 0;
};

}  // namespace millrace
