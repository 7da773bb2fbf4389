// Charsmap: the precompiled character map of a SentencePiece normalizer. A blob of
//   u32 bytes of the trie | trie: u32 units of a double array (Darts-clone) | texts, 0-terminated
// that rewrites the longest prefix it knows. Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace millrace {

class Charsmap {
 public:
  static StatusOr<std::shared_ptr<const Charsmap>> parse(std::string_view blob);

  struct Match {
    size_t length = 0;  // bytes of the prefix; 0: none
    std::string_view replacement;
  };
  Match longest_prefix(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace millrace
