// BlockPool: the block ids of one KV group, reference-counted. A BlockRef is one reference and
// gives it back when it goes; a block without references is free, or stays reusable (its content is
// in the prefix index) until a new block is needed and it is the one that was released longest ago.
// Owned by PagedCache; engine thread only.
//
//   free ──allocate──► used ──last release──► free                  (content not kept)
//                       ▲ └───last release──► cached (LRU) ──evict──► free or used
//                       └────────share─────────┘
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace millrace {

using BlockId = int32_t;

class BlockPool;

class BlockRef {
 public:
  BlockRef() = default;
  BlockRef(BlockRef&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), id_(std::exchange(other.id_, -1)) {}
  BlockRef& operator=(BlockRef&& other) noexcept {
    if (this != &other) {
      release();
      pool_ = std::exchange(other.pool_, nullptr);
      id_ = std::exchange(other.id_, -1);
    }
    return *this;
  }
  ~BlockRef() { release(); }

  explicit operator bool() const { return pool_ != nullptr; }
  BlockId id() const { return id_; }  // -1: empty
  void release();

 private:
  friend class BlockPool;
  BlockRef(BlockPool* pool, BlockId id) : pool_(pool), id_(id) {}
  BlockPool* pool_ = nullptr;
  BlockId id_ = -1;
};

class BlockPool {
 public:
  // `on_evict` is told the id of a kept block whose content is about to be forgotten.
  BlockPool(int64_t num_blocks, std::function<void(BlockId)> on_evict);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  int64_t total() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t used() const { return total() - available(); }
  int64_t cached() const { return num_cached_; }
  int64_t available() const { return static_cast<int64_t>(free_.size()) + num_cached_; }
  bool is_used(BlockId id) const { return blocks_[static_cast<size_t>(id)].references > 0; }

  // A block with one reference; an empty ref when nothing is available.
  BlockRef allocate();
  // One more reference to a used or cached block.
  BlockRef share(BlockId id);
  // Marks a used block's content as indexed: it will be cached, not freed, at its last release.
  void keep(BlockId id);
  // Forgets the content of every cached block.
  void evict_all();

 private:
  friend class BlockRef;
  struct Block {
    int32_t references = 0;
    bool kept = false;
    BlockId previous = -1, next = -1;  // in the LRU list while cached
  };
  void release(BlockId id);
  void push_lru(BlockId id);
  void remove_lru(BlockId id);
  void evict_oldest();
  Block& at(BlockId id) { return blocks_[static_cast<size_t>(id)]; }

  std::vector<Block> blocks_;
  std::vector<BlockId> free_;          // a stack: the block released last is warm
  BlockId oldest_ = -1, newest_ = -1;  // ends of the LRU list
  int64_t num_cached_ = 0;
  std::function<void(BlockId)> on_evict_;
};

inline void BlockRef::release() {
  if (pool_) std::exchange(pool_, nullptr)->release(std::exchange(id_, -1));
}

}  // namespace millrace
