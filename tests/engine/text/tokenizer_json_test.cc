#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/text/byte_level.h"
#include "engine/text/tokenizer.h"
#include "engine/text/unicode.h"
#include "tests/engine/text/tokenizer_fixture.h"

namespace millrace {
namespace {

using nlohmann::json;
using Pieces = std::vector<std::string>;

// Every byte, "he", "Ġw", and the added tokens <s> (258) and <tool> (259).
json byte_level_json() {
  json vocab = json::object();
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    append_utf8(byte_to_char(static_cast<uint8_t>(byte)), text);
    vocab[text] = byte;
  }
  vocab["he"] = 256;
  vocab["\u0120w"] = 257;
  json root;
  root["model"] = {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array({"h e", "\u0120 w"})}};
  root["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  root["decoder"] = {{"type", "ByteLevel"}};
  root["added_tokens"] = {{{"id", 258}, {"content", "<s>"}, {"special", true}},
                          {{"id", 259}, {"content", "<tool>"}, {"normalized", false}}};
  return root;
}

std::unique_ptr<Tokenizer> load(const json& root, std::string_view config = {}) {
  auto loaded = Tokenizer::from_tokenizer_json(root.dump(), config);
  EXPECT_TRUE(loaded.ok()) << status_message(loaded.status());
  return loaded.ok() ? *std::move(loaded) : nullptr;
}

std::string load_error(const json& root) {
  const auto loaded = Tokenizer::from_tokenizer_json(root.dump());
  EXPECT_FALSE(loaded.ok());
  return loaded.ok() ? "" : status_message(loaded.status());
}

json added(int id, const std::string& content, const std::string& flag) {
  return {{"id", id}, {"content", content}, {"normalized", false}, {flag, true}};
}

// A class name in the side file changes nothing of what tokenizer.json declares.
TEST(TokenizerJson, IsTheAuthorityOverTheConfig) {
  const auto tokenizer =
      load(byte_level_json(), R"({"tokenizer_class": "LlamaTokenizerFast", "legacy": true})");
  EXPECT_EQ(pieces_of(*tokenizer, "hello world"),
            (Pieces{"he", "l", "l", "o", " w", "o", "r", "l", "d"}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("hello world"), true), "hello world");
  EXPECT_EQ(tokenizer->token_text(257), "\u0120w");
}

TEST(TokenizerJson, TakesMergesAsPairs) {
  json root = byte_level_json();
  root["model"]["merges"] = json::array({json::array({"h", "e"}), json::array({"\u0120", "w"})});
  EXPECT_EQ(pieces_of(*load(root), "he w"), (Pieces{"he", " w"}));
}

TEST(TokenizerJson, TheTemplateDecidesWhatIsAdded) {
  json root = byte_level_json();
  const std::string config = R"({"bos_token": {"content": "<s>"}, "add_bos_token": true})";
  EXPECT_EQ(load(root)->encode("h"), (std::vector<Token>{'h'}));
  // Without a template of its own, an explicit wish of the config counts.
  EXPECT_EQ(load(root, config)->encode("h"), (std::vector<Token>{258, 'h'}));
  EXPECT_EQ(load(root, config)->bos(), 258);

  root["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", json::array({{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                              {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                              {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}})},
      {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", json::array({258})}}}}}};
  EXPECT_EQ(load(root, config)->encode("h"), (std::vector<Token>{258, 'h', 258}));
  EXPECT_EQ(load(root)->encode("<s>h", {.add_special_tokens = false}),
            (std::vector<Token>{258, 'h'}));
  root["post_processor"]["special_tokens"]["<s>"]["ids"] = json::array({99999});
  load_error(root);
}

TEST(TokenizerJson, AddedTokensTakeWhiteSpaceAlong) {
  json root = byte_level_json();
  root["added_tokens"].push_back(added(260, "<left>", "lstrip"));
  root["added_tokens"].push_back(added(261, "<right>", "rstrip"));
  root["added_tokens"].push_back(added(262, "word", "single_word"));
  const auto tokenizer = load(root);
  const auto ids = [&](const std::string& text) { return tokenizer->encode(text); };
  EXPECT_EQ(ids("a \n <left> b"), (std::vector<Token>{'a', 260, ' ', 'b'}));
  EXPECT_EQ(ids("a <right> \n b"), (std::vector<Token>{'a', ' ', 261, 'b'}));
  EXPECT_EQ(ids("word"), (std::vector<Token>{262}));
  EXPECT_EQ(ids("word.").front(), 262);
  EXPECT_EQ(ids("sword").size(), 5u);
  EXPECT_EQ(ids("word_").size(), 5u);
}

TEST(TokenizerJson, AddedTokensThatAreNotSpecialStayInTheOutput) {
  const auto tokenizer = load(byte_level_json());
  const std::vector<Token> ids = tokenizer->encode("<s>a<tool>");
  EXPECT_EQ(ids, (std::vector<Token>{258, 'a', 259}));
  EXPECT_EQ(tokenizer->decode(ids, true), "a<tool>");
  const ByteRange literal[] = {{0, 10}};
  EXPECT_EQ(tokenizer->encode("<s>a<tool>", {.literal = literal}).size(), 10u);
}

TEST(TokenizerJson, NormalizedAddedTokensAreFoundAfterNormalization) {
  json root = byte_level_json();
  root["normalizer"] = {{"type", "NFC"}};
  root["added_tokens"].push_back({{"id", 260}, {"content", "caf\u00e9"}, {"normalized", true}});
  const auto tokenizer = load(root);
  EXPECT_EQ(tokenizer->encode("cafe\u0301"), (std::vector<Token>{260}));
  EXPECT_EQ(tokenizer->encode("caf\u00e9"), (std::vector<Token>{260}));
  const ByteRange literal[] = {{0, 6}};
  EXPECT_EQ(tokenizer->encode("cafe\u0301", {.literal = literal}).size(), 5u);
}

TEST(TokenizerJson, HasHolesBetweenItsIds) {
  json root = byte_level_json();
  root["added_tokens"].push_back({{"id", 300}, {"content", "<high>"}, {"special", true}});
  const auto tokenizer = load(root);
  EXPECT_EQ(tokenizer->size(), 301);
  EXPECT_EQ(tokenizer->holes().size(), 40u);
  EXPECT_EQ(tokenizer->holes().front(), 260);
  EXPECT_EQ(tokenizer->holes().back(), 299);
}

TEST(TokenizerJson, NamesWhatIsUnsupported) {
  const auto with = [](const char* member, json value) {
    json root = byte_level_json();
    root[member] = std::move(value);
    return load_error(root);
  };
  const auto has = [](const std::string& message, const char* name) {
    return message.find(name) != std::string::npos;
  };
  EXPECT_TRUE(has(with("normalizer", {{"type", "BertNormalizer"}}), "BertNormalizer"));
  EXPECT_TRUE(has(with("normalizer", {{"type", "Precompiled"}}), "Precompiled"));
  EXPECT_TRUE(has(with("pre_tokenizer", {{"type", "UnicodeScripts"}}), "UnicodeScripts"));
  EXPECT_TRUE(has(with("decoder", {{"type", "WordPiece"}}), "WordPiece"));
  EXPECT_TRUE(has(with("decoder", nullptr), "decoder"));
  EXPECT_TRUE(has(with("decoder", {{"type", "Fuse"}}), "ByteLevel"));
  EXPECT_TRUE(has(with("post_processor", {{"type", "Frob"}}), "Frob"));
  EXPECT_TRUE(
      has(with("model", {{"type", "Unigram"}, {"vocab", json::array({json::array({"a", -1.0})})}}),
          "Unigram"));
  EXPECT_TRUE(
      has(with("pre_tokenizer",
               {{"type", "Split"}, {"pattern", {{"Regex", "(broken"}}}, {"behavior", "Isolated"}}),
          "(broken"));
  json root = byte_level_json();
  root["model"]["continuing_subword_prefix"] = "##";
  EXPECT_TRUE(has(load_error(root), "continuing_subword_prefix"));
}

// A few bytes of a file must not make a text grow without bound.
TEST(TokenizerJson, BoundsHowFarReplacementsGrowAText) {
  json doubling = json::array();
  for (int i = 0; i < 7; ++i) {
    doubling.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  }
  json root = byte_level_json();
  root["normalizer"] = {{"type", "Sequence"}, {"normalizers", doubling}};
  EXPECT_NE(load_error(root).find("64 times"), std::string::npos);
  doubling.erase(doubling.begin());
  root["normalizer"]["normalizers"] = doubling;
  EXPECT_EQ(load(root)->encode("a").size(), 64u);
  root["decoder"] = {{"type", "Sequence"}, {"decoders", doubling}};
  load_error(root);
}

TEST(TokenizerJson, SurvivesMalformedFiles) {
  for (const char* text :
       {"", "[]", "{", "null", "{\"model\":null}", "{\"model\":{\"vocab\":[1,2]}}",
        R"({"model":{"vocab":{"a":"b"}}})",
        R"({"model":{"vocab":{"a":-1}},"decoder":{"type":"Fuse"}})",
        R"({"model":{"vocab":{"a":9999999999}},"decoder":{"type":"Fuse"}})",
        R"({"model":{"vocab":{"a":2000000000}},"decoder":{"type":"Fuse"}})",
        R"({"model":{"vocab":{"a":0},"merges":["a"]},"decoder":{"type":"Fuse"}})",
        R"({"model":{"vocab":{"a":0},"merges":[["a"]]},"decoder":{"type":"Fuse"}})",
        R"({"model":{"vocab":{"a":0},"merges":["a a"]},"decoder":{"type":"Fuse"}})"}) {
    EXPECT_FALSE(Tokenizer::from_tokenizer_json(text).ok()) << text;
  }
  std::string deep = R"({"model":{"vocab":{"a":0}},"decoder":{"type":"Fuse"},"x":)";
  deep += std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_TRUE(Tokenizer::from_tokenizer_json(deep).ok());
  json nested = {{"type", "NFC"}};
  for (int i = 0; i < 20; ++i)
    nested = {{"type", "Sequence"}, {"normalizers", json::array({nested})}};
  json root = byte_level_json();
  root["normalizer"] = nested;
  load_error(root);
}

TEST(TokenizerJson, LlamaStyleFilesDropOneSpaceAtTheStart) {
  json root;
  json vocab = {{"<unk>", 0}, {"\u2581", 1}, {"a", 2}, {"b", 3}, {"\u2581a", 4}};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    snprintf(name, sizeof(name), "<0x%02X>", byte);
    vocab[name] = 5 + byte;
  }
  root["model"] = {
      {"type", "BPE"},         {"vocab", vocab},       {"merges", json::array({"\u2581 a"})},
      {"byte_fallback", true}, {"unk_token", "<unk>"}, {"fuse_unk", true}};
  root["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Prepend"}, {"prepend", "\u2581"}},
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}};
  root["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}},
                       {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  const auto tokenizer = load(root);
  EXPECT_EQ(pieces_of(*tokenizer, "ab a"), (Pieces{" a", "b", " a"}));
  EXPECT_EQ(pieces_of(*tokenizer, "\u00e9"), (Pieces{" ", "\xC3", "\xA9"}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("ab a\u00e9"), true), "ab a\u00e9");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(" a"), true), " a");
}

}  // namespace
}  // namespace millrace
