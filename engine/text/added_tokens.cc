#include "engine/text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "engine/text/unicode.h"

namespace millrace {
namespace {

// Start of the character that ends at `end`.
size_t previous_char(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) {
    --begin;
  }
  return begin;
}

bool is_word_at(std::string_view text, size_t begin) {
  return is_word_char(decode_utf8(text.data() + begin, text.data() + text.size()).code);
}

bool is_inside_word(std::string_view text, size_t begin, size_t end) {
  return (begin > 0 && is_word_at(text, previous_char(text, begin))) ||
         (end < text.size() && is_word_at(text, end));
}

}  // namespace

int32_t AddedTokens::child(int32_t node, char byte) const {
  int32_t next = nodes_[node].first_child;
  while (next >= 0 && nodes_[next].byte != byte) next = nodes_[next].next_sibling;
  return next;
}

void AddedTokens::add(AddedToken token) {
  if (token.content.empty()) return;
  int32_t node = 0;
  for (const char byte : token.content) {
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({.byte = byte, .next_sibling = nodes_[node].first_child});
      nodes_[node].first_child = next;
    }
    node = next;
  }
  if (nodes_[node].token >= 0) return;
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  starts_[static_cast<uint8_t>(token.content[0])] = true;
  tokens_.push_back(std::move(token));
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, size_t from,
                                                    std::span<const ByteRange> literal,
                                                    size_t& next_literal) const {
  if (tokens_.empty()) return std::nullopt;
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<uint8_t>(text[begin])]) continue;
    while (next_literal < literal.size() && literal[next_literal].end <= begin) ++next_literal;
    size_t limit = text.size();
    if (next_literal < literal.size()) {
      if (literal[next_literal].begin <= begin) {
        begin = literal[next_literal].end - 1;
        continue;
      }
      limit = std::min(limit, literal[next_literal].begin);
    }
    int32_t longest = -1;
    int32_t node = 0;
    for (size_t i = begin; i < limit; ++i) {
      node = child(node, text[i]);
      if (node < 0) break;
      if (nodes_[node].token >= 0) longest = nodes_[node].token;
    }
    if (longest < 0) continue;
    const AddedToken& token = tokens_[longest];
    const size_t end = begin + token.content.size();
    if (token.single_word && is_inside_word(text, begin, end)) {
      begin = end - 1;
      continue;
    }
    return widened(text, from, begin, end, token);
  }
  return std::nullopt;
}

AddedTokens::Match AddedTokens::widened(std::string_view text, size_t from, size_t begin,
                                        size_t end, const AddedToken& token) const {
  while (token.lstrip && begin > from) {
    const size_t before = previous_char(text, begin);
    if (before < from ||
        !(flagged_char(text.data() + before, text.data() + text.size()).flags & kWhiteSpace)) {
      break;
    }
    begin = before;
  }
  while (token.rstrip && end < text.size()) {
    const FlaggedChar c = flagged_char(text.data() + end, text.data() + text.size());
    if (!(c.flags & kWhiteSpace)) break;
    end += c.length;
  }
  return {begin, end, token.id};
}

}  // namespace millrace
