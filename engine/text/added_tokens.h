// AddedTokens: finds the tokens that are recognised in text before any splitting (control tokens,
// user-defined tokens), leftmost first and the longest among those that start there. Filled by a
// loader, immutable afterwards; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/token.h"
#include "engine/text/tokenizer.h"

namespace millrace {

struct AddedToken {
  std::string content;
  Token id = -1;
  bool lstrip = false, rstrip = false;  // takes the white space before, after it along
  bool single_word = false;             // not inside a word
};

class AddedTokens {
 public:
  // Empty contents are ignored; the first of two equal contents wins.
  void add(AddedToken token);
  bool empty() const { return tokens_.empty(); }

  struct Match {
    size_t begin = 0, end = 0;  // with the white space it takes along
    Token id = -1;
  };
  // The first match in text[from, size) whose content overlaps none of `literal`. `next_literal` is
  // the caller's cursor into `literal`: starts at 0, only grows.
  std::optional<Match> find(std::string_view text, size_t from, std::span<const ByteRange> literal,
                            size_t& next_literal) const;

 private:
  struct Node {
    char byte = 0;
    int32_t first_child = -1, next_sibling = -1;
    int32_t token = -1;  // index into tokens_
  };
  int32_t child(int32_t node, char byte) const;
  Match widened(std::string_view text, size_t from, size_t begin, size_t end,
                const AddedToken& token) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::array<bool, 256> starts_{};  // bytes that begin a token
};

}  // namespace millrace
