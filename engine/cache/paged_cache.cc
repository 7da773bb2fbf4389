#include "engine/cache/paged_cache.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/base/check.h"

namespace millrace {
namespace {

std::vector<int64_t> block_counts(const std::vector<CacheGroup>& groups) {
  std::vector<int64_t> counts;
  for (const CacheGroup& g : groups) counts.push_back(g.num_blocks);
  return counts;
}

}  // namespace

PageTable& PageTable::operator=(PageTable&& other) noexcept {
  if (this != &other) {
    clear();
    groups_ = std::move(other.groups_);
    other.groups_.clear();
    std::swap(tip_, other.tip_);
    committed_ = std::exchange(other.committed_, 0);
  }
  return *this;
}

void PageTable::clear() {
  // The end of a text first, so that it is evicted before what it depends on.
  for (Group& g : groups_)
    while (!g.refs.empty()) g.refs.pop_back();
  groups_.clear();
  tip_ = {};
  committed_ = 0;
}

PagedCache::PagedCache(PagedCacheOptions options)
    : options_(std::move(options)), index_(block_counts(options_.groups)) {
  ensure(!options_.groups.empty() && options_.block_size > 0, "a cache has groups of blocks");
  capacity_tokens_ = std::numeric_limits<int64_t>::max();
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    const CacheGroup& group = options_.groups[g];
    pools_.push_back(std::make_unique<BlockPool>(
        group.num_blocks, [this, g](BlockId block) { index_.detach(static_cast<int>(g), block); }));
    if (group.window == 0 || group.num_blocks < window_span(group.window))
      capacity_tokens_ = std::min(capacity_tokens_, group.num_blocks * options_.block_size);
  }
}

int64_t PagedCache::first_needed(const CacheGroup& group, int64_t position) const {
  if (group.window == 0) return 0;
  return std::max<int64_t>(0, position - group.window + 1) / options_.block_size;
}

PagedCache::Match PagedCache::match(const PrefixChain& chain, std::span<const Token> tokens,
                                    std::string_view salt, int64_t limit) const {
  Match match;
  if (!options_.prefix_caching) return match;
  const auto size = static_cast<size_t>(options_.block_size);
  const int64_t most = std::min(chain.num_blocks(), limit / options_.block_size);
  std::vector<int64_t> run(pools_.size(), 0);  // blocks present without a gap, up to here
  int64_t usable = 0;
  PrefixIndex::Node* node = nullptr;
  for (int64_t k = 0; k < most; ++k) {
    node = index_.find({node, chain[k], tokens.subspan(static_cast<size_t>(k) * size, size), salt});
    if (!node) break;
    match.nodes.push_back(node);
    bool complete = true, possible = true;
    for (size_t g = 0; g < pools_.size(); ++g) {
      const CacheGroup& group = options_.groups[g];
      run[g] = node->blocks[g] >= 0 ? run[g] + 1 : 0;
      const int64_t needed = k + 1 - first_needed(group, (k + 1) * options_.block_size);
      complete &= run[g] >= needed;
      possible &= group.window > 0 || run[g] == k + 1;
    }
    if (!possible) break;
    if (complete) usable = k + 1;
  }
  match.nodes.resize(static_cast<size_t>(usable));
  return match;
}

bool PagedCache::fits(const Match& match, int64_t end, int64_t spare) const {
  const int64_t hits = match.num_blocks();
  for (size_t g = 0; g < pools_.size(); ++g) {
    const CacheGroup& group = options_.groups[g];
    const int64_t first = first_needed(group, hits * options_.block_size);
    int64_t idle = 0;  // hits that would stop being available
    for (int64_t k = first; k < hits; ++k)
      idle += !pools_[g]->is_used(match.nodes[static_cast<size_t>(k)]->blocks[g]);
    int64_t needed = std::max<int64_t>(0, blocks_for(end) - hits);
    if (group.window > 0) needed = std::min(needed, window_span(group.window) - (hits - first));
    if (pools_[g]->available() - idle < needed + spare) return false;
  }
  return true;
}

PageTable PagedCache::open(const Match& match) {
  PageTable table;
  table.groups_.resize(pools_.size());
  const int64_t hits = match.num_blocks();
  for (size_t g = 0; g < pools_.size(); ++g) {
    PageTable::Group& group = table.groups_[g];
    group.first = first_needed(options_.groups[g], hits * options_.block_size);
    for (int64_t k = 0; k < hits; ++k) {
      BlockRef ref;
      if (k >= group.first) ref = pools_[g]->share(match.nodes[static_cast<size_t>(k)]->blocks[g]);
      group.ids.push_back(ref.id());
      group.refs.push_back(std::move(ref));
    }
  }
  table.committed_ = hits;
  if (hits > 0) table.tip_ = PrefixIndex::Pin(index_, match.nodes.back());
  return table;
}

int64_t PagedCache::growable_end(const PageTable& table, Groups which) const {
  int64_t blocks = std::numeric_limits<int64_t>::max() / options_.block_size;
  for (size_t g = 0; g < pools_.size(); ++g) {
    if (which == Groups::full && options_.groups[g].window > 0) continue;
    const auto held = static_cast<int64_t>(table.groups_[g].ids.size());
    blocks = std::min(blocks, held + pools_[g]->available());
  }
  return blocks * options_.block_size;
}

void PagedCache::grow(PageTable& table, int64_t end, Groups which) {
  const auto blocks = static_cast<size_t>(blocks_for(end));
  for (size_t g = 0; g < pools_.size(); ++g) {
    if (which == Groups::full && options_.groups[g].window > 0) continue;
    PageTable::Group& group = table.groups_[g];
    while (group.ids.size() < blocks) {
      BlockRef ref = pools_[g]->allocate();
      ensure(static_cast<bool>(ref), "a table grows only as far as it can");
      group.ids.push_back(ref.id());
      group.refs.push_back(std::move(ref));
    }
  }
}

void PagedCache::index_block(PageTable& table, const PrefixIndex::Key& key) {
  PrefixIndex::Node* node = index_.find_or_add(key);
  // The pin first: it alone keeps a node whose blocks are all another sequence's.
  PrefixIndex::Pin pin(index_, node);
  for (size_t g = 0; g < pools_.size(); ++g) {
    const BlockId block = table.groups_[g].ids[static_cast<size_t>(table.committed_)];
    if (block < 0 || node->blocks[g] >= 0) continue;
    index_.attach(node, static_cast<int>(g), block);
    pools_[g]->keep(block);
  }
  std::swap(table.tip_, pin);
  ++table.committed_;
}

void PagedCache::commit(PageTable& table, const PrefixChain& chain, std::span<const Token> tokens,
                        std::string_view salt, int64_t computed) {
  const auto size = static_cast<size_t>(options_.block_size);
  if (options_.prefix_caching) {
    while (table.committed_ < computed / options_.block_size) {
      const int64_t k = table.committed_;
      index_block(table, {table.tip_.get(), chain[k],
                          tokens.subspan(static_cast<size_t>(k) * size, size), salt});
    }
  }
  for (size_t g = 0; g < pools_.size(); ++g) {
    PageTable::Group& group = table.groups_[g];
    const int64_t first = first_needed(options_.groups[g], computed);
    for (; group.first < first; ++group.first) {
      group.refs[static_cast<size_t>(group.first)].release();
      group.ids[static_cast<size_t>(group.first)] = -1;
    }
  }
}

void PagedCache::reset() {
  for (const auto& pool : pools_) pool->evict_all();
}

int64_t PagedCache::total() const {
  int64_t n = 0;
  for (const auto& pool : pools_) n += pool->total();
  return n;
}

int64_t PagedCache::used() const {
  int64_t n = 0;
  for (const auto& pool : pools_) n += pool->used();
  return n;
}

int64_t PagedCache::cached() const {
  int64_t n = 0;
  for (const auto& pool : pools_) n += pool->cached();
  return n;
}

}  // namespace millrace
