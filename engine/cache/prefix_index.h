// PrefixIndex: which block of each KV group holds which prefix. A node stands for one full block of
// tokens after the exact tokens of its parent; it lives as long as a block, a child or a pin refers
// to it. A node is found by hash and confirmed by comparing its tokens and parent, and, where the
// chain begins, its salt; so a collision can never give one text the KV of another.
// Owned by PagedCache; engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/token.h"
#include "engine/cache/block_pool.h"
#include "engine/cache/prefix_chain.h"

namespace millrace {

class PrefixIndex {
 public:
  struct Node {
    Hash128 hash;
    Node* parent = nullptr;
    std::vector<Token> tokens;    // [block_size]
    std::string salt;             // of the chain; empty except where parent is null
    std::vector<BlockId> blocks;  // [groups], -1: this group has no block of it
    int64_t references = 0;       // blocks, children and pins
  };

  // One block of a token list, to be found or added.
  struct Key {
    Node* parent;  // null: the first block
    Hash128 hash;
    std::span<const Token> tokens;
    std::string_view salt;
  };

  // Keeps a node alive; move-only.
  class Pin {
   public:
    Pin() = default;
    Pin(PrefixIndex& index, Node* node) : index_(&index), node_(node) {
      if (node_) ++node_->references;
    }
    Pin(Pin&& other) noexcept : index_(other.index_), node_(std::exchange(other.node_, nullptr)) {}
    Pin& operator=(Pin&& other) noexcept {
      std::swap(index_, other.index_);
      std::swap(node_, other.node_);
      return *this;
    }
    ~Pin() {
      if (node_) index_->unreference(node_);
    }
    Node* get() const { return node_; }

   private:
    PrefixIndex* index_ = nullptr;
    Node* node_ = nullptr;
  };

  // num_blocks[g]: blocks of group g.
  explicit PrefixIndex(const std::vector<int64_t>& num_blocks);

  Node* find(const Key& key) const;  // null: unknown
  // The node of `key`, made if it is new; pin or attach it, else nothing keeps it.
  Node* find_or_add(const Key& key);
  // Says that `block` of `group` holds the node's content; the node has none there yet.
  void attach(Node* node, int group, BlockId block);
  // The block's content is forgotten.
  void detach(int group, BlockId block);

  int64_t num_nodes() const { return static_cast<int64_t>(nodes_.size()); }

 private:
  void unreference(Node* node);

  std::unordered_multimap<Hash128, std::unique_ptr<Node>, Hash128Hasher> nodes_;
  std::vector<std::vector<Node*>> owners_;  // [groups][blocks]
};

}  // namespace millrace
