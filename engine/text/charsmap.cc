#include "engine/text/charsmap.h"

#include <cstring>

namespace millrace {
namespace {

// Layout of a unit of the double array, as Darts-clone writes it.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value(uint32_t unit) { return unit & 0x7FFFFFFFu; }
uint32_t label(uint32_t unit) { return unit & 0x800000FFu; }
uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }

}  // namespace

StatusOr<std::shared_ptr<const Charsmap>> Charsmap::parse(std::string_view blob) {
  uint32_t trie_bytes = 0;
  if (blob.size() >= sizeof(trie_bytes)) std::memcpy(&trie_bytes, blob.data(), sizeof(trie_bytes));
  if (trie_bytes < 4 || trie_bytes % 4 != 0 || blob.size() - 4 < trie_bytes) {
    return absl::InvalidArgumentError(
        "the tokenizer's precompiled character map is damaged: its trie does not fit into it");
  }
  auto map = std::make_shared<Charsmap>();
  map->units_.resize(trie_bytes / 4);
  std::memcpy(map->units_.data(), blob.data() + 4, trie_bytes);
  map->texts_ = blob.substr(4 + trie_bytes);
  return std::shared_ptr<const Charsmap>(std::move(map));
}

Charsmap::Match Charsmap::longest_prefix(std::string_view text) const {
  Match match;
  uint32_t position = offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    position ^= byte;
    if (position >= units_.size() || label(units_[position]) != byte) break;
    const uint32_t unit = units_[position];
    position ^= offset(unit);
    if (!has_leaf(unit) || position >= units_.size()) continue;
    const uint32_t begin = value(units_[position]);
    if (begin >= texts_.size()) continue;
    const std::string_view rest = std::string_view(texts_).substr(begin);
    match = {i + 1, rest.substr(0, rest.find('\0'))};
  }
  return match;
}

}  // namespace millrace
