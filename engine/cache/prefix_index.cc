#include "engine/cache/prefix_index.h"

#include <algorithm>

#include "engine/base/check.h"

namespace millrace {

PrefixIndex::PrefixIndex(const std::vector<int64_t>& num_blocks) {
  for (const int64_t n : num_blocks) owners_.emplace_back(static_cast<size_t>(n), nullptr);
}

PrefixIndex::Node* PrefixIndex::find(const Key& key) const {
  const auto [begin, end] = nodes_.equal_range(key.hash);
  for (auto it = begin; it != end; ++it) {
    Node& node = *it->second;
    if (node.parent == key.parent && std::ranges::equal(node.tokens, key.tokens) &&
        (key.parent || node.salt == key.salt))
      return &node;
  }
  return nullptr;
}

PrefixIndex::Node* PrefixIndex::find_or_add(const Key& key) {
  if (Node* node = find(key)) return node;
  auto node = std::make_unique<Node>();
  node->hash = key.hash;
  node->parent = key.parent;
  node->tokens.assign(key.tokens.begin(), key.tokens.end());
  if (key.parent) {
    ++key.parent->references;
  } else {
    node->salt = key.salt;
  }
  node->blocks.assign(owners_.size(), -1);
  return nodes_.emplace(key.hash, std::move(node))->second.get();
}

void PrefixIndex::attach(Node* node, int group, BlockId block) {
  BlockId& place = node->blocks[static_cast<size_t>(group)];
  Node*& owner = owners_[static_cast<size_t>(group)][static_cast<size_t>(block)];
  ensure(place < 0 && owner == nullptr, "a node has one block per group, a block one node");
  place = block;
  owner = node;
  ++node->references;
}

void PrefixIndex::detach(int group, BlockId block) {
  Node*& owner = owners_[static_cast<size_t>(group)][static_cast<size_t>(block)];
  ensure(owner != nullptr, "only an attached block is detached");
  Node* node = std::exchange(owner, nullptr);
  node->blocks[static_cast<size_t>(group)] = -1;
  unreference(node);
}

void PrefixIndex::unreference(Node* node) {
  // Upwards in a loop: a chain is as long as a prompt.
  while (node) {
    ensure(node->references > 0, "a node is unreferenced once per reference");
    if (--node->references > 0) return;
    Node* parent = node->parent;
    const auto [begin, end] = nodes_.equal_range(node->hash);
    const auto it =
        std::find_if(begin, end, [node](const auto& entry) { return entry.second.get() == node; });
    nodes_.erase(it);
    node = parent;
  }
}

}  // namespace millrace
