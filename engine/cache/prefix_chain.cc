#include "engine/cache/prefix_chain.h"

#include <xxhash.h>

#include <cstring>

namespace millrace {

PrefixChain::PrefixChain(int block_size, std::string_view salt, uint64_t seed)
    : block_size_(block_size) {
  const XXH128_hash_t root = XXH3_128bits_withSeed(salt.data(), salt.size(), seed);
  root_ = {root.low64, root.high64};
}

void PrefixChain::extend(std::span<const Token> tokens) {
  const auto size = static_cast<size_t>(block_size_);
  const size_t num_blocks = tokens.size() / size;
  if (hashes_.size() >= num_blocks) return;
  const size_t token_bytes = size * sizeof(Token);
  std::vector<char> input(sizeof(Hash128) + token_bytes);
  while (hashes_.size() < num_blocks) {
    const Hash128 parent = hashes_.empty() ? root_ : hashes_.back();
    std::memcpy(input.data(), &parent, sizeof(parent));
    std::memcpy(input.data() + sizeof(parent), tokens.data() + hashes_.size() * size, token_bytes);
    const XXH128_hash_t hash = XXH3_128bits(input.data(), input.size());
    hashes_.push_back({hash.low64, hash.high64});
  }
}

}  // namespace millrace
