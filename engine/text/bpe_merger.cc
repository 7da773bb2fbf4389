#include "engine/text/bpe_merger.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace millrace {
namespace {

// Below this the quadratic loop over a small array beats the heap.
constexpr size_t kShortWord = 40;
constexpr uint32_t kNil = UINT32_MAX;

size_t hash_pair(Token left, Token right) {
  const uint64_t key =
      static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  const uint64_t mixed = key * 0x9E3779B97F4A7C15u;
  return mixed ^ mixed >> 32;
}

}  // namespace

void BpeMerger::reserve(size_t num_merges) {
  size_t size = 16;
  while (size * 4 < num_merges * 5) size *= 2;
  if (size > slots_.size()) grow(size);
}

void BpeMerger::grow(size_t num_slots) {
  std::vector<Rule> old = std::exchange(slots_, std::vector<Rule>(num_slots));
  num_rules_ = 0;
  for (const Rule& rule : old) {
    if (rule.merged >= 0) add(rule.left, rule.right, rule.rank, rule.merged);
  }
}

void BpeMerger::add(Token left, Token right, uint32_t rank, Token merged) {
  if ((num_rules_ + 1) * 8 > slots_.size() * 7) grow(std::max<size_t>(16, slots_.size() * 2));
  for (size_t slot = hash_pair(left, right);; ++slot) {
    Rule& rule = slots_[slot & (slots_.size() - 1)];
    if (rule.merged < 0) {
      rule = {left, right, rank, merged};
      ++num_rules_;
      return;
    }
    if (rule.left == left && rule.right == right) {
      if (rank < rule.rank) rule = {left, right, rank, merged};
      return;
    }
  }
}

const BpeMerger::Rule* BpeMerger::find(Token left, Token right) const {
  if ((left | right) < 0 || slots_.empty()) return nullptr;
  for (size_t slot = hash_pair(left, right);; ++slot) {
    const Rule& rule = slots_[slot & (slots_.size() - 1)];
    if (rule.merged < 0) return nullptr;
    if (rule.left == left && rule.right == right) return &rule;
  }
}

void BpeMerger::merge(std::vector<BpeSymbol>& symbols, Workspace& workspace) const {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShortWord) {
    merge_short(symbols, workspace);
  } else {
    merge_long(symbols, workspace);
  }
}

void BpeMerger::merge_short(std::vector<BpeSymbol>& symbols, Workspace& workspace) const {
  std::vector<uint32_t>& ranks = workspace.ranks;
  ranks.resize(symbols.size() - 1);
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    ranks[i] = rank_of(symbols[i].id, symbols[i + 1].id);
  }
  while (!ranks.empty()) {
    const size_t i = std::min_element(ranks.begin(), ranks.end()) - ranks.begin();
    if (ranks[i] == kNoRank) return;
    symbols[i].id = find(symbols[i].id, symbols[i + 1].id)->merged;
    symbols.erase(symbols.begin() + i + 1);
    ranks.erase(ranks.begin() + i);
    if (i > 0) ranks[i - 1] = rank_of(symbols[i - 1].id, symbols[i].id);
    if (i < ranks.size()) ranks[i] = rank_of(symbols[i].id, symbols[i + 1].id);
  }
}

// A linked list of symbols and a heap of pairs. A heap entry is stale, and skipped, when the pair
// at its place no longer has its rank.
void BpeMerger::merge_long(std::vector<BpeSymbol>& symbols, Workspace& workspace) const {
  const auto size = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t>& ranks = workspace.ranks;
  std::vector<uint32_t>& next = workspace.next;
  std::vector<uint32_t>& previous = workspace.previous;
  std::vector<uint64_t>& heap = workspace.heap;
  ranks.assign(size, kNoRank);
  next.resize(size);
  previous.resize(size);
  heap.clear();
  const auto entry = [](uint32_t rank, uint32_t i) {
    return static_cast<uint64_t>(rank) << 32 | i;
  };
  for (uint32_t i = 0; i < size; ++i) {
    next[i] = i + 1 < size ? i + 1 : kNil;
    previous[i] = i > 0 ? i - 1 : kNil;
    if (i + 1 < size) ranks[i] = rank_of(symbols[i].id, symbols[i + 1].id);
    if (ranks[i] != kNoRank) heap.push_back(entry(ranks[i], i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto update = [&](uint32_t i) {
    ranks[i] = next[i] == kNil ? kNoRank : rank_of(symbols[i].id, symbols[next[i]].id);
    if (ranks[i] == kNoRank) return;
    heap.push_back(entry(ranks[i], i));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    const auto i = static_cast<uint32_t>(heap.back());
    heap.pop_back();
    if (ranks[i] != rank) continue;
    const uint32_t right = next[i];
    symbols[i].id = find(symbols[i].id, symbols[right].id)->merged;
    next[i] = next[right];
    if (next[i] != kNil) previous[next[i]] = i;
    ranks[right] = kNoRank;
    update(i);
    if (previous[i] != kNil) update(previous[i]);
  }
  size_t kept = 0;
  for (uint32_t i = 0; i != kNil; i = next[i]) symbols[kept++] = symbols[i];
  symbols.resize(kept);
}

}  // namespace millrace
