#include "tests/engine/text/tokenizer_fixture.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "engine/text/byte_level.h"
#include "engine/text/unicode.h"

namespace millrace {

GgufVocabulary byte_level_vocabulary(std::string pre, const std::vector<std::string>& merges,
                                     const std::vector<std::string>& control) {
  GgufVocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = std::move(pre);
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    append_utf8(byte_to_char(static_cast<uint8_t>(byte)), text);
    vocabulary.tokens.push_back(text);
  }
  for (const std::string& merge : merges) {
    std::string merged = merge;
    merged.erase(merged.find(' ', 1), 1);
    if (std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), merged) ==
        vocabulary.tokens.end()) {
      vocabulary.tokens.push_back(merged);
    }
    vocabulary.merges.push_back(merge);
  }
  vocabulary.types.assign(vocabulary.tokens.size(), 1);
  for (const std::string& token : control) {
    vocabulary.tokens.push_back(token);
    vocabulary.types.push_back(3);
  }
  return vocabulary;
}

GgufVocabulary sentencepiece_vocabulary(const std::vector<std::pair<std::string, float>>& pieces) {
  GgufVocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.pre = "default";
  vocabulary.tokens = {"<unk>", "<s>", "</s>"};
  vocabulary.types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.push_back(absl::StrFormat("<0x%02X>", byte));
    vocabulary.types.push_back(6);
  }
  vocabulary.scores.assign(vocabulary.tokens.size(), 0);
  for (const auto& [text, score] : pieces) {
    vocabulary.tokens.push_back(text);
    vocabulary.types.push_back(1);
    vocabulary.scores.push_back(score);
  }
  vocabulary.unk = 0;
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  return vocabulary;
}

std::unique_ptr<Tokenizer> load_gguf(GgufVocabulary vocabulary) {
  auto loaded = Tokenizer::from_gguf(std::move(vocabulary));
  EXPECT_TRUE(loaded.ok()) << status_message(loaded.status());
  return loaded.ok() ? *std::move(loaded) : nullptr;
}

std::vector<std::string> pieces_of(const Tokenizer& tokenizer, std::string_view text,
                                   const EncodeOptions& options) {
  std::vector<std::string> pieces;
  for (const Token token : tokenizer.encode(text, options)) {
    pieces.emplace_back(tokenizer.token_bytes(token));
  }
  return pieces;
}

}  // namespace millrace
