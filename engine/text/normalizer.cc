#include "engine/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "engine/text/unicode.h"

namespace millrace {
namespace {

// Stable order by combining class within every run of non-starters.
void sort_marks(std::vector<utf8proc_int32_t>& codes) {
  const auto combining_class = [](utf8proc_int32_t code) {
    return utf8proc_get_property(code)->combining_class;
  };
  for (size_t begin = 0; begin < codes.size();) {
    if (combining_class(codes[begin]) == 0) {
      ++begin;
      continue;
    }
    size_t end = begin + 1;
    while (end < codes.size() && combining_class(codes[end]) != 0) ++end;
    std::stable_sort(codes.begin() + begin, codes.begin() + end,
                     [&](utf8proc_int32_t a, utf8proc_int32_t b) {
                       return combining_class(a) < combining_class(b);
                     });
    begin = end;
  }
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  if (from.empty() || text.find(from) == std::string::npos) return;
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  for (size_t at; (at = text.find(from, done)) != std::string::npos; done = at + from.size()) {
    out.append(text, done, at - done);
    out += to;
  }
  out.append(text, done);
  text = std::move(out);
}

void replace_matches(std::string& text, const NormalizeOp& op, SplitRegex::MatchState& state) {
  std::string out;
  size_t done = 0;
  size_t from = 0;
  while (from <= text.size()) {
    const SplitRule::Match match = op.regex->find(text, from, state);
    if (match.begin == SplitRegex::kNone) break;
    out.append(text, done, match.begin - done);
    out += op.to;
    done = match.end;
    from = match.end;
    if (match.end != match.begin) continue;
    if (from == text.size()) break;
    from += decode_utf8(text.data() + from, text.data() + text.size()).length;
  }
  out.append(text, done);
  text = std::move(out);
}

void strip(std::string& text, bool left, bool right) {
  const char* begin = text.data();
  const char* const end = begin + text.size();
  const char* last = begin;  // end of the last character that is not white space
  bool leading = left;
  for (const char* p = begin; p < end;) {
    const FlaggedChar c = flagged_char(p, end);
    const bool space = c.flags & kWhiteSpace;
    p += c.length;
    if (!space) {
      leading = false;
      last = p;
    } else if (leading) {
      begin = last = p;
    }
  }
  text = std::string(begin, right ? last : end);
}

// Character map, ill-formed bytes to U+FFFD one by one, and runs of spaces to one space, none at
// the ends.
std::string sentencepiece_normalize(std::string_view text, const NormalizeOp& op) {
  std::string out;
  out.reserve(text.size());
  bool after_space = true;
  const auto append = [&](std::string_view piece) {
    for (const char c : piece) {
      if (op.remove_extra_whitespaces && c == ' ' && after_space) continue;
      after_space = c == ' ';
      out += c;
    }
  };
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    if (op.charsmap != nullptr) {
      const Charsmap::Match match = op.charsmap->longest_prefix({p, static_cast<size_t>(end - p)});
      if (match.length > 0) {
        append(match.replacement);
        p += match.length;
        continue;
      }
    }
    const Utf8Char c = decode_utf8(p, end);
    if (c.state == Utf8State::complete) {
      append({p, c.length});
      p += c.length;
    } else {
      append(op.replace_ill_formed ? std::string_view("\xEF\xBF\xBD") : std::string_view(p, 1));
      ++p;
    }
  }
  if (op.remove_extra_whitespaces && !out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

}  // namespace

std::string unicode_normalize(std::string_view text, NormalizeOp::Kind form) {
  if (is_ascii(text)) return std::string(text);
  const bool compatible = form == NormalizeOp::Kind::nfkc || form == NormalizeOp::Kind::nfkd;
  const bool compose = form == NormalizeOp::Kind::nfc || form == NormalizeOp::Kind::nfkc;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const Utf8Char c = decode_utf8(p, end);
    p += c.length;
    utf8proc_int32_t parts[32];  // the longest decomposition has 18
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code), parts, 32,
                                               options, &boundary);
    codes.insert(codes.end(), parts, parts + std::clamp<utf8proc_ssize_t>(count, 0, 32));
  }
  sort_marks(codes);
  if (compose) {
    const auto size = utf8proc_normalize_utf32(
        codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    codes.resize(std::max<utf8proc_ssize_t>(size, 0));
  }
  std::string out;
  out.reserve(text.size());
  for (const utf8proc_int32_t code : codes) append_utf8(static_cast<char32_t>(code), out);
  return out;
}

std::string Normalizer::apply(std::string_view text, bool prefix,
                              SplitRegex::MatchState& state) const {
  using Kind = NormalizeOp::Kind;
  std::string out(text);
  for (const NormalizeOp& op : ops_) {
    switch (op.kind) {
      case Kind::nfc:
      case Kind::nfd:
      case Kind::nfkc:
      case Kind::nfkd: out = unicode_normalize(out, op.kind); break;
      case Kind::prepend:
        if (prefix && !out.empty()) out.insert(0, op.to);
        break;
      case Kind::prepend_once:
        if (prefix && !out.empty() && !out.starts_with(op.to)) out.insert(0, op.to);
        break;
      case Kind::replace: replace_all(out, op.from, op.to); break;
      case Kind::replace_regex: replace_matches(out, op, state); break;
      case Kind::strip: strip(out, op.left, op.right); break;
      case Kind::sentencepiece: out = sentencepiece_normalize(out, op); break;
    }
  }
  return out;
}

}  // namespace millrace
