// PrefixChain: the hash of every full block of one token list, each over its parent's hash and its
// own tokens; the first one's parent is the hash of the salt. Equal hashes are a hint only:
// PrefixIndex confirms by comparing. Owned by one sequence; engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/base/token.h"

namespace millrace {

struct Hash128 {
  uint64_t low = 0, high = 0;
  bool operator==(const Hash128&) const = default;
};

struct Hash128Hasher {
  size_t operator()(const Hash128& h) const { return static_cast<size_t>(h.low); }
};

class PrefixChain {
 public:
  PrefixChain() = default;
  PrefixChain(int block_size, std::string_view salt, uint64_t seed);

  // Adds the blocks that `tokens`, which begins with the tokens seen so far, has filled since.
  void extend(std::span<const Token> tokens);

  int64_t num_blocks() const { return static_cast<int64_t>(hashes_.size()); }
  const Hash128& operator[](int64_t block) const { return hashes_[static_cast<size_t>(block)]; }

 private:
  int block_size_ = 0;
  Hash128 root_;
  std::vector<Hash128> hashes_;
};

}  // namespace millrace
