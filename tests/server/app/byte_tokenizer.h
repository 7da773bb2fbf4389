// ByteTokenizer: one token per byte, and an end token. Makes the text of a scripted engine readable
// in tests.
#pragma once

#include <array>
#include <string>

#include "engine/text/tokenizer.h"

namespace millrace::app {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr Token kEnd = 256;

  ByteTokenizer() {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = std::string(1, static_cast<char>(i));
  }

  std::vector<Token> encode(std::string_view text, const EncodeOptions&) const override {
    std::vector<Token> tokens;
    for (char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  std::string_view token_bytes(Token token) const override {
    if (token == kEnd) return "<end>";
    return token >= 0 && token < kEnd ? std::string_view(bytes_[static_cast<size_t>(token)])
                                      : std::string_view();
  }
  std::string_view first_token_bytes(Token token) const override { return token_bytes(token); }
  bool is_special(Token token) const override { return token == kEnd; }
  std::optional<Token> find(std::string_view text) const override {
    if (text == "<end>") return kEnd;
    if (text.size() == 1) return static_cast<unsigned char>(text[0]);
    return std::nullopt;
  }
  std::string_view token_text(Token token) const override { return token_bytes(token); }
  int64_t size() const override { return kEnd + 1; }
  std::vector<Token> holes() const override { return {}; }
  std::optional<Token> bos() const override { return std::nullopt; }
  std::optional<Token> eos() const override { return kEnd; }
  std::vector<Token> end_tokens() const override { return {kEnd}; }

 private:
  std::array<std::string, 256> bytes_;
};

}  // namespace millrace::app
