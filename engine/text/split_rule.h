// SplitRule: one hand-written scanner for a known split pattern of byte-level tokenizers. It finds
// the same matches as the regular expression and needs time linear in the text, whatever its shape.
// Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace millrace {

struct CodeRange {
  char32_t first, last;
};

// A set of code points: every char whose flags meet `flags`, and those in `ranges`.
struct CharSet {
  uint8_t flags = 0;
  std::span<const CodeRange> ranges = {};
  bool contains(const char* p, const char* end, uint8_t& length) const;
};

struct SplitRule {
  enum class Kind : uint8_t { gpt2, word, cased_word, deepseek3, run };
  Kind kind = Kind::gpt2;

  // word:       (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max}|
  //             ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  // cased_word: the same, its words split where lower case turns to upper case, contractions as a
  //             tail of the word, and '/' among what may follow punctuation
  int max_digits = 3;  // 0: no limit
  bool contractions = true;
  bool marks_in_words = false;  // \p{L} means [\p{L}\p{M}]
  bool whole_tail = false;      // white space at the end of the text is one piece (cl100k_base)
  bool punctuation_takes_newlines = true;

  // run: prefix?set{min,max}, or set+$ with at_end
  uint8_t prefix_flags = 0;
  CharSet set = {};
  int min = 1;
  int max = 0;  // 0: no limit
  bool at_end = false;

  struct Match {
    size_t begin = 0, end = 0;
  };
  // First match at or after `from`; {size, size} if there is none.
  Match find(std::string_view text, size_t from) const;

 private:
  // Bytes matched exactly at `p` (0: none), in a text that ends at `end`.
  size_t match(const char* p, const char* end) const;
};

}  // namespace millrace
