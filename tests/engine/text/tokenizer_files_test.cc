// The other file formats: tokenizer.model, tiktoken ranks, tekken.json, and normalization.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "engine/text/base64.h"
#include "engine/text/charsmap.h"
#include "engine/text/normalizer.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/text/tokenizer_fixture.h"

namespace millrace {
namespace {

using Pieces = std::vector<std::string>;

std::string base64(const std::string& bytes) { return absl::Base64Escape(bytes); }

// Ids 0..255: the bytes. Then `more`.
std::string ranks(const std::vector<std::string>& more) {
  std::string text;
  int rank = 0;
  for (; rank < 256; ++rank) {
    text += absl::StrFormat("%s %d\n", base64(std::string(1, static_cast<char>(rank))), rank);
  }
  for (const std::string& bytes : more) text += absl::StrFormat("%s %d\n", base64(bytes), rank++);
  return text;
}

TEST(Base64, DecodesWhatItShouldAndNothingElse) {
  for (const std::string text : {"", "a", "ab", "abc", "abcd", "\xFF\xFE\x00"}) {
    EXPECT_EQ(decode_base64(base64(text)), text);
  }
  EXPECT_EQ(decode_base64("YWI"), "ab");
  EXPECT_FALSE(decode_base64("A").has_value());
  EXPECT_FALSE(decode_base64("a b=").has_value());
}

TEST(Tiktoken, MergesWhateverIsAnEntry) {
  const std::pair<std::string, Token> special[] = {{"<|endoftext|>", 300}};
  auto loaded = Tokenizer::from_tiktoken(ranks({"he", "ll", "hell", "hello"}), "gpt2", special);
  ASSERT_TRUE(loaded.ok()) << status_message(loaded.status());
  EXPECT_EQ(pieces_of(**loaded, "hello"), (Pieces{"hello"}));
  EXPECT_EQ(pieces_of(**loaded, "hellp"), (Pieces{"hell", "p"}));
  EXPECT_EQ((*loaded)->encode("<|endoftext|>"), (std::vector<Token>{300}));
  EXPECT_EQ((*loaded)->encode("<|endoftext|>", {.parse_special = false}).size(), 13u);
  EXPECT_EQ((*loaded)->eos(), 300);
  EXPECT_EQ((*loaded)->size(), 301);
}

TEST(Tiktoken, RefusesMalformedRanks) {
  EXPECT_FALSE(Tokenizer::from_tiktoken(ranks({}), "frob", {}).ok());
  EXPECT_FALSE(Tokenizer::from_tiktoken("", "gpt2", {}).ok());  // no byte tokens
  EXPECT_FALSE(Tokenizer::from_tiktoken(ranks({}) + "YWI=\n", "gpt2", {}).ok());
  EXPECT_FALSE(Tokenizer::from_tiktoken(ranks({}) + "YWI= x\n", "gpt2", {}).ok());
  EXPECT_FALSE(Tokenizer::from_tiktoken(ranks({}) + "YWI= 99999999\n", "gpt2", {}).ok());
  EXPECT_FALSE(Tokenizer::from_tiktoken(ranks({std::string(2000, 'a')}), "gpt2", {}).ok());
}

TEST(Tekken, PutsSpecialTokensInFront) {
  std::string vocab;
  for (int rank = 0; rank < 256; ++rank) {
    vocab +=
        absl::StrFormat("%s{\"rank\":%d,\"token_bytes\":\"%s\",\"token_str\":null}",
                        rank > 0 ? "," : "", rank, base64(std::string(1, static_cast<char>(rank))));
  }
  const std::string text = absl::StrFormat(
      R"({"config":{"pattern":"\\p{N}|\\s+|[^\\s\\p{N}]+","default_vocab_size":276,)"
      R"("default_num_special_tokens":20},"vocab":[%s]})",
      vocab);
  const auto loaded = Tokenizer::from_tekken_json(text);
  ASSERT_TRUE(loaded.ok()) << status_message(loaded.status());
  EXPECT_EQ((*loaded)->encode("[INST]a"), (std::vector<Token>{1, 3, 20 + 'a'}));
  EXPECT_EQ((*loaded)->eos(), 2);
  EXPECT_FALSE(Tokenizer::from_tekken_json("{}").ok());
  EXPECT_FALSE(Tokenizer::from_tekken_json("[").ok());
  EXPECT_FALSE(Tokenizer::from_tekken_json(R"({"config":{"default_vocab_size":5}})").ok());
}

// The protobuf wire format of a SentencePiece model, written by hand.
class ModelFile {
 public:
  ModelFile& piece(const std::string& text, float score, int type) {
    std::string body = "\x0A" + length(text) + text + "\x15";
    body.append(reinterpret_cast<const char*>(&score), 4);
    body += "\x18";
    body += static_cast<char>(type);
    bytes_ += "\x0A" + length(body) + body;
    return *this;
  }
  // model_type BPE is 2.
  std::string finish(int model_type, bool remove_extra_whitespaces,
                     const std::string& charsmap = {}) const {
    const std::string trainer = {0x18, static_cast<char>(model_type)};
    std::string normalizer = {0x20, remove_extra_whitespaces ? '\1' : '\0'};
    if (!charsmap.empty()) normalizer += "\x12" + length(charsmap) + charsmap;
    return bytes_ + "\x12" + length(trainer) + trainer + "\x1A" + length(normalizer) + normalizer;
  }

 private:
  static std::string length(const std::string& text) {
    return std::string(1, static_cast<char>(text.size()));
  }
  std::string bytes_;
};

ModelFile small_model() {
  const std::string mark = "\xE2\x96\x81";
  return ModelFile()
      .piece("<unk>", 0, 2)
      .piece("<s>", 0, 3)
      .piece("</s>", 0, 3)
      .piece(mark, -3, 1)
      .piece("a", -3, 1)
      .piece("b", -3, 1)
      .piece(mark + "a", -1, 1)
      .piece("<x>", 0, 4);
}

TEST(SentencePieceModel, NormalizesMergesAndFusesUnknowns) {
  const auto loaded = Tokenizer::from_sentencepiece(small_model().finish(2, true));
  ASSERT_TRUE(loaded.ok()) << status_message(loaded.status());
  const auto ids = [&](std::string_view text) {
    return (*loaded)->encode(text, {.add_special_tokens = false});
  };
  EXPECT_EQ(ids("a"), (std::vector<Token>{6}));
  EXPECT_EQ(ids("  a   b "), (std::vector<Token>{6, 3, 5}));
  EXPECT_EQ(ids("aqqq\xE6\x97\xA5"
                "b"),
            (std::vector<Token>{6, 0, 5}));
  EXPECT_EQ(ids("   "), (std::vector<Token>{}));
  EXPECT_EQ(ids("a<x>a"), (std::vector<Token>{6, 7, 4}));
  EXPECT_EQ(ids("a</s>a"), (std::vector<Token>{6, 2, 6}));
  EXPECT_EQ((*loaded)->encode("a"), (std::vector<Token>{1, 6}));
  EXPECT_EQ((*loaded)->decode(ids("a b"), true), "a b");
  const auto without_bos =
      Tokenizer::from_sentencepiece(small_model().finish(2, true), R"({"add_bos_token":false})");
  EXPECT_EQ((*without_bos)->encode("a"), (std::vector<Token>{6}));
}

TEST(SentencePieceModel, RefusesWhatItCannotRun) {
  EXPECT_FALSE(Tokenizer::from_sentencepiece("\xFF\xFF").ok());
  EXPECT_FALSE(Tokenizer::from_sentencepiece("").ok());
  const auto unigram = Tokenizer::from_sentencepiece(small_model().finish(1, true));
  ASSERT_FALSE(unigram.ok());
  EXPECT_NE(status_message(unigram.status()).find("UNIGRAM"), std::string::npos);
  EXPECT_FALSE(Tokenizer::from_sentencepiece(small_model().finish(2, true, "abc")).ok());
}

TEST(Charsmap, StaysInsideItsBlob) {
  EXPECT_FALSE(Charsmap::parse("").ok());
  EXPECT_FALSE(Charsmap::parse(std::string("\x08\0\0\0abcd", 8)).ok());
  // Units that point anywhere.
  std::string blob("\x10\0\0\0", 4);
  for (int i = 0; i < 16; ++i) blob += static_cast<char>(0xC1 + 7 * i);
  const auto map = Charsmap::parse(blob);
  ASSERT_TRUE(map.ok());
  for (int byte = 0; byte < 256; ++byte) {
    (*map)->longest_prefix(std::string(8, static_cast<char>(byte)));
  }
}

TEST(UnicodeNormalize, GivesTheFourForms) {
  using Kind = NormalizeOp::Kind;
  EXPECT_EQ(unicode_normalize("e\u0301", Kind::nfc), "\u00e9");
  EXPECT_EQ(unicode_normalize("\u00e9", Kind::nfd), "e\u0301");
  EXPECT_EQ(unicode_normalize("\ufb01", Kind::nfkc), "fi");
  EXPECT_EQ(unicode_normalize("\ufb01", Kind::nfc), "\ufb01");
  EXPECT_EQ(unicode_normalize("a\u0301\u0323", Kind::nfc), "\u1ea1\u0301");
  EXPECT_EQ(unicode_normalize("\uac00", Kind::nfkd), "\u1100\u1161");
  EXPECT_EQ(unicode_normalize("\u1100\u1161", Kind::nfc), "\uac00");
}

// Marks in the worst order: sorting must not be quadratic.
TEST(UnicodeNormalize, SortsLongRunsOfMarks) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  const std::string sorted = unicode_normalize(text, NormalizeOp::Kind::nfd);
  EXPECT_EQ(sorted.size(), text.size());
  EXPECT_EQ(sorted.substr(1, 2), "\u0323");
  EXPECT_EQ(sorted.substr(sorted.size() - 2), "\u0301");
}

}  // namespace
}  // namespace millrace
