// PieceTokenizer: ids 0..255 are bytes, those above are pieces that a test gives: text pieces,
// control tokens, and holes. Encodes greedily by the longest match. Makes every way to cut a text
// into tokens possible in a test. Immutable.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/tokenizer.h"

namespace millrace::app {

class PieceTokenizer final : public Tokenizer {
 public:
  enum class Kind : uint8_t { text, control, hole };
  using Pieces = std::vector<std::pair<std::string, Kind>>;
  static constexpr Token kFirstPiece = 256;

  // `bos` is added in front of every encoding that asks for special tokens; -1: none.
  explicit PieceTokenizer(Pieces pieces, Token bos = -1) : pieces_(std::move(pieces)), bos_(bos) {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = std::string(1, static_cast<char>(i));
  }

  std::vector<Token> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<Token> tokens;
    if (options.add_special_tokens && bos_ >= 0) tokens.push_back(bos_);
    for (size_t at = 0; at < text.size();) {
      Token best = static_cast<unsigned char>(text[at]);
      size_t length = 1;
      for (size_t p = 0; p < pieces_.size(); ++p) {
        const auto& [piece, kind] = pieces_[p];
        if (kind == Kind::hole || piece.size() <= length) continue;
        if (!text.substr(at).starts_with(piece)) continue;
        if (kind == Kind::control && !may_parse(at, at + piece.size(), options)) continue;
        best = kFirstPiece + static_cast<Token>(p);
        length = piece.size();
      }
      tokens.push_back(best);
      at += length;
    }
    return tokens;
  }

  std::string_view token_bytes(Token token) const override {
    if (token < 0 || token >= size()) return {};
    if (token < kFirstPiece) return bytes_[static_cast<size_t>(token)];
    return pieces_[static_cast<size_t>(token - kFirstPiece)].first;
  }
  // As SentencePiece does: one leading space of a text is not part of it.
  std::string_view first_token_bytes(Token token) const override {
    std::string_view bytes = token_bytes(token);
    if (bytes.size() > 1 && bytes[0] == ' ') bytes.remove_prefix(1);
    return bytes;
  }
  bool is_special(Token token) const override { return kind_of(token) == Kind::control; }
  std::optional<Token> find(std::string_view text) const override {
    for (Token t = 0; t < size(); ++t) {
      if (token_bytes(t) == text) return t;
    }
    return std::nullopt;
  }
  std::string_view token_text(Token token) const override { return token_bytes(token); }
  int64_t size() const override { return kFirstPiece + static_cast<int64_t>(pieces_.size()); }
  std::vector<Token> holes() const override {
    std::vector<Token> holes;
    for (Token t = kFirstPiece; t < size(); ++t) {
      if (kind_of(t) == Kind::hole) holes.push_back(t);
    }
    return holes;
  }
  std::optional<Token> bos() const override {
    return bos_ >= 0 ? std::optional<Token>(bos_) : std::nullopt;
  }
  std::optional<Token> eos() const override { return std::nullopt; }
  std::vector<Token> end_tokens() const override { return {}; }

 private:
  static bool may_parse(size_t begin, size_t end, const EncodeOptions& options) {
    if (!options.parse_special) return false;
    return std::none_of(options.literal.begin(), options.literal.end(),
                        [&](const ByteRange& r) { return r.begin < end && begin < r.end; });
  }
  Kind kind_of(Token token) const {
    if (token < kFirstPiece || token >= size()) return Kind::text;
    return pieces_[static_cast<size_t>(token - kFirstPiece)].second;
  }

  Pieces pieces_;
  Token bos_;
  std::array<std::string, 256> bytes_;
};

}  // namespace millrace::app
