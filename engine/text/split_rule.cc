#include "engine/text/split_rule.h"

#include <algorithm>

#include "engine/text/unicode.h"

namespace millrace {
namespace {

bool is_newline(char c) { return c == '\r' || c == '\n'; }

// End of the run of characters that have one of `flags`.
const char* skip_flags(const char* p, const char* end, uint8_t flags) {
  while (p < end) {
    const FlaggedChar c = flagged_char(p, end);
    if (!(c.flags & flags)) break;
    p += c.length;
  }
  return p;
}

const char* skip_without(const char* p, const char* end, uint8_t flags) {
  while (p < end) {
    const FlaggedChar c = flagged_char(p, end);
    if (c.flags & flags) break;
    p += c.length;
  }
  return p;
}

const char* skip_digits(const char* p, const char* end, int max) {
  for (int i = 0; p < end && (max == 0 || i < max); ++i) {
    const FlaggedChar c = flagged_char(p, end);
    if (!(c.flags & kNumber)) break;
    p += c.length;
  }
  return p;
}

// 's 't 're 've 'm 'll 'd; the long s folds to s where case is ignored.
size_t contraction(const char* p, const char* end, bool ignore_case) {
  if (end - p < 2 || *p != '\'') return 0;
  const auto lower = [&](int i) -> char {
    if (p + i >= end) return 0;
    return ignore_case && p[i] >= 'A' && p[i] <= 'Z' ? static_cast<char>(p[i] + 32) : p[i];
  };
  switch (lower(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd': return 2;
    case 'r':
    case 'v': return lower(2) == 'e' ? 3 : 0;
    case 'l': return lower(2) == 'l' ? 3 : 0;
    default: break;
  }
  const bool long_s = ignore_case && end - p >= 3 && p[1] == '\xC5' && p[2] == '\xBF';
  return long_s ? 3 : 0;
}

// \s+(?!\S)|\s+ over the white space [p, run): its last character is left to what follows.
const char* leave_last_space(const char* p, const char* run, const char* end) {
  if (run == end) return run;
  const char* last = run - 1;
  while (last > p && (static_cast<uint8_t>(*last) & 0xC0) == 0x80) --last;
  return last > p ? last : run;
}

// [\s*[\r\n]+ | \s+(?!\S) | \s+], `whole_tail` puts \s+$ in front. `p` must be at white space.
const char* match_space(const char* p, const char* end, bool whole_tail) {
  const char* const run = skip_flags(p, end, kWhiteSpace);
  if (whole_tail && run == end) return run;
  for (const char* q = run; q > p; --q) {
    if (is_newline(q[-1])) return q;
  }
  return leave_last_space(p, run, end);
}

size_t match_gpt2(const char* p, const char* end) {
  if (const size_t n = contraction(p, end, false)) return n;
  const char* q = p + (*p == ' ' ? 1 : 0);
  if (q < end) {
    const FlaggedChar c = flagged_char(q, end);
    if (c.flags & kLetter) return skip_flags(q, end, kLetter) - p;
    if (c.flags & kNumber) return skip_flags(q, end, kNumber) - p;
    if (!(c.flags & kWhiteSpace)) {
      return skip_without(q, end, kWhiteSpace | kLetter | kNumber) - p;
    }
  }
  const char* const run = skip_flags(p, end, kWhiteSpace);
  return leave_last_space(p, run, end) - p;
}

// ' ?[^\s\p{L}\p{N}]+[\r\n]*' with `tail` among the newlines; null if it does not match.
const char* match_punctuation(const char* p, const char* end, uint8_t excluded, bool newlines,
                              char tail) {
  const char* const q = p + (*p == ' ' ? 1 : 0);
  const char* r = skip_without(q, end, excluded);
  if (r == q) return nullptr;
  while (newlines && r < end && (is_newline(*r) || *r == tail)) ++r;
  return r;
}

size_t match_word(const SplitRule& rule, const char* p, const char* end) {
  if (rule.contractions) {
    if (const size_t n = contraction(p, end, true)) return n;
  }
  const uint8_t word = kLetter | (rule.marks_in_words ? kMark : 0);
  const FlaggedChar first = flagged_char(p, end);
  if (first.flags & word) return skip_flags(p, end, word) - p;
  if (first.flags & kNumber) return skip_digits(p, end, rule.max_digits) - p;
  if (!is_newline(*p)) {
    const char* const q = p + first.length;
    const char* const r = skip_flags(q, end, word);
    if (r > q) return r - p;
  }
  const char* const r = match_punctuation(p, end, kWhiteSpace | kNumber | word,
                                          rule.punctuation_takes_newlines, '\n');
  if (r != nullptr) return r - p;
  return match_space(p, end, rule.whole_tail) - p;
}

constexpr uint8_t kUpperClass = kUpperLetter | kOtherLetter | kMark;
constexpr uint8_t kLowerClass = kLowerLetter | kOtherLetter | kMark;

// [upper]*[lower]+ at `p`, with the backtracking of the pattern: where no lower-class character
// follows the upper-class run, the run's last character of both classes ends the match.
const char* match_upper_lower(const char* p, const char* end) {
  const char* both_end = nullptr;
  const char* q = p;
  while (q < end) {
    const FlaggedChar c = flagged_char(q, end);
    if (!(c.flags & kUpperClass)) break;
    q += c.length;
    if (c.flags & kLowerClass) both_end = q;
  }
  const char* const r = skip_flags(q, end, kLowerClass);
  return r > q ? r : both_end;
}

const char* match_upper(const char* p, const char* end) {
  const char* const q = skip_flags(p, end, kUpperClass);
  return q > p ? skip_flags(q, end, kLowerClass) : nullptr;
}

size_t match_cased_word(const SplitRule& rule, const char* p, const char* end) {
  const FlaggedChar first = flagged_char(p, end);
  if (first.flags & kNumber) return skip_digits(p, end, rule.max_digits) - p;
  const bool prefix = !(first.flags & kLetter) && !is_newline(*p);
  const char* const after = p + first.length;
  const char* r = prefix ? match_upper_lower(after, end) : nullptr;
  if (r == nullptr) r = match_upper_lower(p, end);
  if (r == nullptr && prefix) r = match_upper(after, end);
  if (r == nullptr) r = match_upper(p, end);
  if (r != nullptr) {
    if (rule.contractions && r < end) r += contraction(r, end, true);
    return r - p;
  }
  r = match_punctuation(p, end, kWhiteSpace | kLetter | kNumber, true, '/');
  if (r != nullptr) return r - p;
  return match_space(p, end, rule.whole_tail) - p;
}

// [ascii punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|
// \s*[\r\n]+|\s+(?!\S)|\s+
size_t match_deepseek3(const char* p, const char* end) {
  constexpr uint8_t kWord = kLetter | kMark;
  constexpr uint8_t kSign = kPunctuation | kSymbol;
  const auto is_latin = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); };
  const FlaggedChar first = flagged_char(p, end);
  const char* const after = p + first.length;
  if (first.length == 1 && static_cast<uint8_t>(*p) < 128 && (first.flags & kSign)) {
    const char* q = after;
    while (q < end && is_latin(*q)) ++q;
    if (q > after) return q - p;
  }
  if (!is_newline(*p) && !(first.flags & (kLetter | kSign))) {
    const char* const q = skip_flags(after, end, kWord);
    if (q > after) return q - p;
  }
  if (first.flags & kWord) return skip_flags(p, end, kWord) - p;
  const char* const q = p + (*p == ' ' ? 1 : 0);
  const char* r = skip_flags(q, end, kSign);
  if (r > q) {
    while (r < end && is_newline(*r)) ++r;
    return r - p;
  }
  return first.flags & kWhiteSpace ? match_space(p, end, false) - p : 0;
}

size_t run_length(const SplitRule& rule, const char* p, const char* end) {
  const char* q = p;
  int count = 0;
  uint8_t length = 0;
  while (q < end && (rule.max == 0 || count < rule.max) && rule.set.contains(q, end, length)) {
    q += length;
    ++count;
  }
  return count >= rule.min ? q - p : 0;
}

size_t match_run(const SplitRule& rule, const char* p, const char* end) {
  if (rule.at_end) {
    const char* const q = skip_flags(p, end, rule.set.flags);
    return q == end ? q - p : 0;
  }
  if (rule.prefix_flags != 0) {
    const FlaggedChar first = flagged_char(p, end);
    if ((first.flags & rule.prefix_flags) && p + first.length < end) {
      const size_t n = run_length(rule, p + first.length, end);
      if (n > 0) return first.length + n;
    }
  }
  return run_length(rule, p, end);
}

}  // namespace

bool CharSet::contains(const char* p, const char* end, uint8_t& length) const {
  const Utf8Char c = decode_utf8(p, end);
  length = c.length;
  if (flags != 0 && (char_flags(c.code) & flags)) return true;
  if (ranges.empty() || c.state != Utf8State::complete) return false;
  const auto above =
      std::upper_bound(ranges.begin(), ranges.end(), c.code,
                       [](char32_t code, const CodeRange& range) { return code < range.first; });
  return above != ranges.begin() && c.code <= above[-1].last;
}

size_t SplitRule::match(const char* p, const char* end) const {
  switch (kind) {
    case Kind::gpt2: return match_gpt2(p, end);
    case Kind::word: return match_word(*this, p, end);
    case Kind::cased_word: return match_cased_word(*this, p, end);
    case Kind::deepseek3: return match_deepseek3(p, end);
    case Kind::run: return match_run(*this, p, end);
  }
  return 0;
}

SplitRule::Match SplitRule::find(std::string_view text, size_t from) const {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const char* p = begin + from;
  while (p < end) {
    const size_t n = match(p, end);
    if (n > 0) return {static_cast<size_t>(p - begin), static_cast<size_t>(p - begin) + n};
    // A run that does not reach the end has no match inside it either.
    if (kind == Kind::run && at_end) {
      const char* const q = skip_flags(p, end, set.flags);
      if (q > p) {
        p = q;
        continue;
      }
    }
    p += flagged_char(p, end).length;
  }
  return {text.size(), text.size()};
}

}  // namespace millrace
