#include "engine/text/derived_merges.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "absl/strings/str_format.h"
#include "engine/text/unicode.h"

namespace millrace {
namespace {

Status check_length(Token id, size_t bytes) {
  if (bytes <= kMaxDerivedTokenBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("token %d of the vocabulary has %d bytes, at most %d are supported", id,
                      bytes, kMaxDerivedTokenBytes));
}

// Ranks by descending score; equal scores share a rank.
std::vector<uint32_t> ranks_of(std::span<const float> scores) {
  std::vector<uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto score = [&](uint32_t id) { return std::isnan(scores[id]) ? -INFINITY : scores[id]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return score(a) > score(b); });
  std::vector<uint32_t> ranks(scores.size());
  uint32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && score(order[i]) != score(order[i - 1])) ++rank;
    ranks[order[i]] = rank;
  }
  return ranks;
}

void add_char_symbols(std::string_view text, Token id, Token& next_symbol, BpeParts& parts) {
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const Utf8Char c = decode_utf8(p, end);
    p += c.length;
    if (c.state != Utf8State::complete) continue;
    if (c.length == text.size()) {
      parts.char_symbols[c.code] = id;
    } else if (parts.char_symbols.emplace(c.code, next_symbol).second) {
      ++next_symbol;
    }
  }
}

// The symbol that `text` is: an entry, or a single character.
Token symbol_of(std::string_view text, const BpeParts& parts) {
  const Utf8Char c = decode_utf8(text.data(), text.data() + text.size());
  if (c.length == text.size()) {
    const auto found = parts.char_symbols.find(c.code);
    return found == parts.char_symbols.end() ? -1 : found->second;
  }
  const Token id = parts.vocabulary.find(text);
  return parts.vocabulary.kind(id) == TokenKind::normal ? id : -1;
}

}  // namespace

Status derive_byte_merges(BpeParts& parts) {
  const Vocabulary& vocabulary = parts.vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    parts.byte_tokens[byte] = vocabulary.find_bytes({&c, 1});
    if (parts.byte_tokens[byte] < 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("the vocabulary has no token for the byte 0x%02X", byte));
    }
  }
  parts.merger.reserve(vocabulary.size() * 2);
  for (Token id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.kind(id) != TokenKind::normal) continue;
    const std::string_view bytes = vocabulary.bytes(id);
    MR_RETURN_IF_ERROR(check_length(id, bytes.size()));
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const Token left = vocabulary.find_bytes(bytes.substr(0, cut));
      if (left < 0) continue;
      const Token right = vocabulary.find_bytes(bytes.substr(cut));
      if (right >= 0) parts.merger.add(left, right, static_cast<uint32_t>(id), id);
    }
  }
  return absl::OkStatus();
}

Status derive_score_merges(std::span<const float> scores, BpeParts& parts) {
  const Vocabulary& vocabulary = parts.vocabulary;
  auto next_symbol = static_cast<Token>(vocabulary.size());
  for (Token id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.kind(id) != TokenKind::normal) continue;
    MR_RETURN_IF_ERROR(check_length(id, vocabulary.text(id).size()));
    add_char_symbols(vocabulary.text(id), id, next_symbol, parts);
  }
  const std::vector<uint32_t> ranks = ranks_of(scores);
  parts.merger.reserve(vocabulary.size() * 2);
  for (Token id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.kind(id) != TokenKind::normal) continue;
    const std::string_view text = vocabulary.text(id);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if ((static_cast<uint8_t>(text[cut]) & 0xC0) == 0x80) continue;
      const Token left = symbol_of(text.substr(0, cut), parts);
      if (left < 0) continue;
      const Token right = symbol_of(text.substr(cut), parts);
      if (right >= 0) parts.merger.add(left, right, ranks[id], id);
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
