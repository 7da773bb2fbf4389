// Normalizer: rewrites a text before it is split, by a sequence of operations. Immutable after
// construction; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/charsmap.h"
#include "engine/text/split_regex.h"

namespace millrace {

struct NormalizeOp {
  enum class Kind : uint8_t {
    nfc,
    nfd,
    nfkc,
    nfkd,
    prepend,        // `to` in front of a text that is not empty
    prepend_once,   // the same, unless the text starts with it
    replace,        // every `from` by `to`
    replace_regex,  // every match of `regex` by `to`
    strip,          // white space at the ends
    sentencepiece,  // the normalizer of a SentencePiece model
  };
  Kind kind = Kind::nfc;
  std::string from, to;
  std::shared_ptr<const SplitRegex> regex;
  bool left = true, right = true;  // strip
  // sentencepiece
  std::shared_ptr<const Charsmap> charsmap;  // null: identity
  bool remove_extra_whitespaces = false;
  bool replace_ill_formed = true;
};

class Normalizer {
 public:
  void add(NormalizeOp op) { ops_.push_back(std::move(op)); }
  bool empty() const { return ops_.empty(); }
  // Appends nothing in front at `prepend` operations if `prefix` is false.
  std::string apply(std::string_view text, bool prefix, SplitRegex::MatchState& state) const;

 private:
  std::vector<NormalizeOp> ops_;
};

// Linear in the text: long runs of combining marks are sorted, not bubbled.
std::string unicode_normalize(std::string_view text, NormalizeOp::Kind form);

}  // namespace millrace
