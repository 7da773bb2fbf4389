#include "engine/cache/block_pool.h"

#include "engine/base/check.h"

namespace millrace {

BlockPool::BlockPool(int64_t num_blocks, std::function<void(BlockId)> on_evict)
    : blocks_(static_cast<size_t>(num_blocks)), on_evict_(std::move(on_evict)) {
  free_.reserve(blocks_.size());
  for (int64_t id = num_blocks; id-- > 0;) free_.push_back(static_cast<BlockId>(id));
}

BlockPool::~BlockPool() { ensure_equal(used(), 0, "no reference outlives its pool"); }

BlockRef BlockPool::allocate() {
  if (free_.empty()) evict_oldest();
  if (free_.empty()) return {};
  const BlockId id = free_.back();
  free_.pop_back();
  at(id).references = 1;
  return BlockRef(this, id);
}

BlockRef BlockPool::share(BlockId id) {
  Block& block = at(id);
  if (block.references == 0) {
    ensure(block.kept, "only used or cached blocks are shared");
    remove_lru(id);
  }
  ++block.references;
  return BlockRef(this, id);
}

void BlockPool::keep(BlockId id) {
  ensure(at(id).references > 0, "only used blocks are kept");
  at(id).kept = true;
}

void BlockPool::release(BlockId id) {
  Block& block = at(id);
  ensure(block.references > 0, "a block is released once per reference");
  if (--block.references > 0) return;
  if (block.kept) {
    push_lru(id);
  } else {
    free_.push_back(id);
  }
}

void BlockPool::push_lru(BlockId id) {
  Block& block = at(id);
  block.previous = newest_;
  block.next = -1;
  (newest_ >= 0 ? at(newest_).next : oldest_) = id;
  newest_ = id;
  ++num_cached_;
}

void BlockPool::remove_lru(BlockId id) {
  Block& block = at(id);
  (block.previous >= 0 ? at(block.previous).next : oldest_) = block.next;
  (block.next >= 0 ? at(block.next).previous : newest_) = block.previous;
  block.previous = block.next = -1;
  --num_cached_;
}

void BlockPool::evict_oldest() {
  const BlockId id = oldest_;
  if (id < 0) return;
  remove_lru(id);
  at(id).kept = false;
  free_.push_back(id);
  on_evict_(id);
}

void BlockPool::evict_all() {
  while (oldest_ >= 0) evict_oldest();
}

}  // namespace millrace
