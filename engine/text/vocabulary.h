// Vocabulary: the entries of a tokenizer, their exact text, the bytes they stand for and their
// kind. Filled by a loader, then finished once and immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/base/token.h"
#include "engine/text/string_index.h"

namespace millrace {

enum class TokenKind : uint8_t {
  hole,  // an id without a token
  normal,
  added,    // recognised in text, shown in output
  control,  // recognised in text, hidden by skip_special_tokens
  byte,
  unknown,  // stands for what the vocabulary cannot express
};

class Vocabulary {
 public:
  // Bounds the highest id by the number of entries, so that a few bytes of a file cannot ask for
  // gigabytes.
  static Status check_id(int64_t id, size_t num_entries);

  // Ids may come in any order; a later set of the same id replaces the earlier one.
  void set(Token id, std::string_view text, std::string_view bytes, TokenKind kind);
  void set_kind(Token id, TokenKind kind) { entries_[id].kind = kind; }
  void set_special(Token id, bool special) { entries_[id].special = special; }
  // Builds the index; of equal texts the lowest id is found.
  void finish();
  // Also finds entries by the bytes they stand for.
  void index_bytes();

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  bool contains(Token id) const {
    return id >= 0 && id < size() && entries_[id].kind != TokenKind::hole;
  }
  std::string_view text(Token id) const {
    return contains(id) ? view(entries_[id].text, entries_[id].text_size) : std::string_view();
  }
  std::string_view bytes(Token id) const {
    return contains(id) ? view(entries_[id].bytes, entries_[id].bytes_size) : std::string_view();
  }
  TokenKind kind(Token id) const { return contains(id) ? entries_[id].kind : TokenKind::hole; }
  bool is_special(Token id) const { return contains(id) && entries_[id].special; }

  Token find(std::string_view text) const;         // -1: none
  Token find_bytes(std::string_view bytes) const;  // -1: none; normal entries only

 private:
  struct Entry {
    uint32_t text = 0, bytes = 0;  // offsets into blob_
    uint32_t text_size = 0, bytes_size = 0;
    TokenKind kind = TokenKind::hole;
    bool special = false;
  };
  std::string_view view(uint32_t offset, uint32_t size) const {
    return std::string_view(blob_).substr(offset, size);
  }

  std::string blob_;
  std::vector<Entry> entries_;
  StringIndex by_text_, by_bytes_;
};

}  // namespace millrace
