#include "engine/text/detokenizer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/engine/text/tokenizer_fixture.h"

namespace millrace {
namespace {

const std::string kFffd = "\xEF\xBF\xBD";

std::string repeated(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

class ByteDetokenizerTest : public ::testing::Test {
 protected:
  // Tokens 0..255 are the bytes.
  std::unique_ptr<Tokenizer> tokenizer_ =
      load_gguf(byte_level_vocabulary("gpt-2", {"\xC4\xA0 h", "\xC4\xA0h i"}, {"<|end|>"}));

  std::string stream(const std::vector<Token>& tokens, DetokenizerOptions options = {}) {
    Detokenizer detokenizer(*tokenizer_, options);
    std::string out;
    for (const Token token : tokens) out += detokenizer.push(token);
    return out + detokenizer.finish();
  }
};

TEST_F(ByteDetokenizerTest, SendsAByteThatCannotContinueAtOnce) {
  Detokenizer detokenizer(*tokenizer_, {});
  for (int i = 0; i < 4000; ++i) ASSERT_EQ(detokenizer.push(0x80), kFffd);
  EXPECT_EQ(detokenizer.push('x'), "x");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST_F(ByteDetokenizerTest, SendsARealReplacementCharacterWhenItIsComplete) {
  Detokenizer detokenizer(*tokenizer_, {});
  for (int i = 0; i < 4000; ++i) {
    ASSERT_EQ(detokenizer.push(0xEF), "");
    ASSERT_EQ(detokenizer.push(0xBF), "");
    ASSERT_EQ(detokenizer.push(0xBD), kFffd);
  }
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST_F(ByteDetokenizerTest, NeverChangesWhatItSent) {
  EXPECT_EQ(stream({0xC3, 0xA9, 0x80, 0x80, 0x80, 0xF0, 0x9F, 0x98, 0x80}),
            "\xC3\xA9" + repeated(kFffd, 3) + "\xF0\x9F\x98\x80");
}

TEST_F(ByteDetokenizerTest, ReplacesWhatTheEndCutsOff) {
  EXPECT_EQ(stream({0xE4, 0xBD}), kFffd);
  EXPECT_EQ(stream({0xC0, 0x80}), repeated(kFffd, 2));
  EXPECT_EQ(stream({0xED, 0xA0, 0x80}), repeated(kFffd, 3));
  EXPECT_EQ(stream({0xF4, 0x90, 0x80, 0x80}), repeated(kFffd, 4));
}

TEST_F(ByteDetokenizerTest, EqualsTheWholeDecodingForAllPairsOfBytes) {
  for (Token a = 0; a < 256; ++a) {
    for (Token b = 0; b < 256; ++b) {
      const std::vector<Token> tokens = {'a', a, b, 0x9F, 'z'};
      ASSERT_EQ(stream(tokens), tokenizer_->decode(tokens, true)) << a << " " << b;
    }
  }
}

TEST_F(ByteDetokenizerTest, HidesControlTokensOnlyIfAsked) {
  const Token end = *tokenizer_->find("<|end|>");
  EXPECT_EQ(stream({'a', end, 'b'}), "ab");
  EXPECT_EQ(stream({'a', end, 'b'}, {.skip_special_tokens = false}), "a<|end|>b");
  EXPECT_EQ(tokenizer_->decode(std::vector<Token>{'a', end}, false), "a<|end|>");
}

TEST_F(ByteDetokenizerTest, KeepsTheFirstSpaceOfByteLevelTokens) {
  const Token hi = *tokenizer_->find("\xC4\xA0hi");
  EXPECT_EQ(stream({hi, ' ', 'y'}), " hi y");
}

TEST_F(ByteDetokenizerTest, IgnoresUnknownIds) { EXPECT_EQ(stream({'a', -1, 1 << 30, 'b'}), "ab"); }

TEST(SentencePieceDetokenizer, DropsOneSpaceAtTheStartOfATextOnly) {
  const auto tokenizer = load_gguf(sentencepiece_vocabulary({{"\xE2\x96\x81", -1},
                                                             {"\xE2\x96\x81lead", -2},
                                                             {"\xE2\x96\x81x", -3},
                                                             {"\xE2\x96\x81world", -4}}));
  const Token space = *tokenizer->find("\xE2\x96\x81");
  const Token lead = *tokenizer->find("\xE2\x96\x81lead");
  const Token x = *tokenizer->find("\xE2\x96\x81x");
  const Token world = *tokenizer->find("\xE2\x96\x81world");
  const auto stream = [&](const std::vector<Token>& tokens, bool at_text_start) {
    Detokenizer detokenizer(*tokenizer, {.at_text_start = at_text_start});
    std::string out;
    for (const Token token : tokens) out += detokenizer.push(token);
    return out + detokenizer.finish();
  };
  EXPECT_EQ(stream({space, lead, x}, true), " lead x");
  EXPECT_EQ(stream({world}, false), " world");
  // A hidden BOS does not use up the start of the text.
  EXPECT_EQ(stream({1, world}, true), "world");
  EXPECT_EQ(tokenizer->decode(std::vector<Token>{1, space, lead, x}, true), " lead x");
  EXPECT_EQ(tokenizer->decode(std::vector<Token>{1, world}, false), "<s> world");
}

TEST(TakeUtf8, HoldsAtMostThreeBytes) {
  std::string bytes = "ab\xF0\x9F\x98";
  EXPECT_EQ(take_utf8(bytes, false), "ab");
  EXPECT_EQ(bytes, "\xF0\x9F\x98");
  bytes += "\x80";
  EXPECT_EQ(take_utf8(bytes, false), "\xF0\x9F\x98\x80");
  EXPECT_TRUE(bytes.empty());
  EXPECT_EQ(take_utf8(bytes, true), "");
}

}  // namespace
}  // namespace millrace
