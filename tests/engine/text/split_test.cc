// The hand-written scanners against PCRE2 running the published patterns, and what each family does
// to texts on which they differ.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "engine/text/pre_tokenizer.h"
#include "engine/text/unicode.h"

namespace millrace {
namespace {

class Collector : public WordSink {
 public:
  void word(std::string_view text) override { words.emplace_back(text); }
  std::vector<std::string> words;
};

std::vector<std::string> split(const std::vector<SplitStage>& stages, std::string_view text) {
  PreTokenizer pre_tokenizer;
  for (const SplitStage& stage : stages) EXPECT_TRUE(pre_tokenizer.add(stage).ok());
  SplitRegex::MatchState state;
  Collector collector;
  pre_tokenizer.split(text, state, collector);
  return collector.words;
}

std::vector<std::string> split_gguf(std::string_view pre, std::string_view text) {
  const auto named = split_for_gguf(pre);
  EXPECT_TRUE(named.ok()) << status_message(named.status());
  return split(named->stages, text);
}

using Words = std::vector<std::string>;

constexpr char kContractions[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const std::string kSpaces = "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const std::string kUpper = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]";
const std::string kLower = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]";
const std::string kHead = "[^\\r\\n\\p{L}\\p{N}]?";

std::string word_pattern(const std::string& digits) {
  return std::string(kContractions) + "|" + kHead + "\\p{L}+|" + digits +
         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" + kSpaces;
}

std::string cased_pattern(const std::string& digits, const std::string& tail) {
  return kHead + kUpper + "*" + kLower + "+" + tail + "|" + kHead + kUpper + "+" + kLower + "*" +
         tail + "|" + digits + "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" + kSpaces;
}

struct Pair {
  std::string name;
  SplitStage scanner;
  std::string pattern;
};

std::vector<Pair> pairs() {
  std::vector<Pair> out;
  for (const std::string& pattern :
       {std::string("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
                    "\\s+(?!\\S)|\\s+"),
        word_pattern("\\p{N}{1,3}"), word_pattern("\\p{N}"), word_pattern("\\p{N}+"),
        cased_pattern("\\p{N}{1,3}", std::string(kContractions) + "?"), cased_pattern("\\p{N}", ""),
        std::string(kContractions) +
            "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" +
            kSpaces,
        std::string("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
                    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*") +
            kSpaces,
        std::string("\\p{N}{1,3}"), std::string("\\p{N}"), std::string("\\s?\\p{L}+"),
        std::string("\\s?\\p{P}+"), std::string("[\\r\\n]")}) {
    const auto stage = split_for_pattern(pattern);
    EXPECT_TRUE(stage.ok());
    EXPECT_TRUE(std::holds_alternative<SplitRule>(stage->matcher)) << pattern;
    out.push_back({pattern, *stage, pattern});
  }
  out.push_back({"cl100k_base", *split_for_tiktoken("cl100k_base"),
                 "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+|"
                 " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++\\z|\\s*[\\r\\n]|\\s+(?!\\S)|\\s"});
  return out;
}

std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> kAlphabet = {
      "a",      "b",      "A",      "B",      "s",      "S",      "t",      "l",
      "L",      "d",      "'",      "'",      " ",      " ",      "\n",     "\r",
      "\t",     "1",      "2",      ".",      "-",      "/",      "$",      "_",
      "\u00e9", "\u00c9", "\u65e5", "\u3042", "\u0301", "\u3000", "\u00a0", "\u017f",
      "\u01c5", "\u02b0", "\u0661", "\u00bd", "\u2014", "\u20ac", "\u200b", "\U0001F600"};
  std::string text;
  for (int n = static_cast<int>(random() % 24); n > 0; --n) {
    text += kAlphabet[random() % kAlphabet.size()];
  }
  return text;
}

TEST(SplitRule, EqualsThePatternItStandsFor) {
  std::mt19937 random(11);
  for (const Pair& pair : pairs()) {
    const auto regex = SplitRegex::compile(pair.pattern);
    ASSERT_TRUE(regex.ok()) << status_message(regex.status());
    for (int round = 0; round < 4000; ++round) {
      const std::string text = random_text(random);
      ASSERT_EQ(split({pair.scanner}, text), split({{*regex}}, text))
          << pair.name << "\ntext: " << text;
    }
  }
}

TEST(SplitRule, TellsTheFamiliesApart) {
  EXPECT_EQ(split_gguf("qwen2", "2026"), (Words{"2", "0", "2", "6"}));
  EXPECT_EQ(split_gguf("llama-bpe", "2026"), (Words{"202", "6"}));
  EXPECT_EQ(split_gguf("gpt-2", "2026"), (Words{"2026"}));
  EXPECT_EQ(split_gguf("smollm", "a 20"), (Words{"a", " ", "2", "0"}));
  EXPECT_EQ(split_gguf("qwen2", "DON'T don't"), (Words{"DON", "'T", " don", "'t"}));
  EXPECT_EQ(split_gguf("gpt-2", "DON'T"), (Words{"DON", "'", "T"}));
  EXPECT_EQ(split_gguf("gpt-4o", "don't"), (Words{"don't"}));
  EXPECT_EQ(split_gguf("tekken", "don't"), (Words{"don", "'t"}));
  EXPECT_EQ(split_gguf("tekken", "XMLHttpRequest"), (Words{"XMLHttp", "Request"}));
  EXPECT_EQ(split_gguf("llama-bpe", "->"), (Words{"->"}));
  EXPECT_EQ(split_gguf("llama-bpe", "(x):\n"), (Words{"(x", "):\n"}));
  EXPECT_EQ(split_gguf("llama-bpe", "    return"), (Words{"   ", " return"}));
  EXPECT_EQ(split_gguf("deepseek-v3", "12345\u65e5\u672c"), (Words{"123", "45", "\u65e5\u672c"}));
  EXPECT_EQ(split_gguf("deepseek-coder", "a12\n"), (Words{"a", "1", "2", "\n"}));
  EXPECT_EQ(split_gguf("falcon", "12345"), (Words{"123", "45"}));
}

TEST(SplitRule, LosesNothing) {
  std::mt19937 random(12);
  for (const char* pre :
       {"gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35", "gpt-4o", "tekken", "deepseek-llm",
        "deepseek-coder", "deepseek-v3", "falcon", "minicpm5", "seed-coder", "ufakzeka"}) {
    for (int round = 0; round < 500; ++round) {
      std::string text = random_text(random);
      if (round % 3 == 0) text += static_cast<char>(random());  // ill-formed at times
      std::string joined;
      for (const std::string& word : split_gguf(pre, text)) joined += word;
      ASSERT_EQ(joined, text) << pre;
    }
  }
}

TEST(SplitRule, UnknownNamesAreErrorsThatListTheKnownOnes) {
  const auto unknown = split_for_gguf("frobnicate");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(status_message(unknown.status()).find("frobnicate"), std::string::npos);
  EXPECT_NE(status_message(unknown.status()).find("llama-bpe"), std::string::npos);
  EXPECT_FALSE(split_for_gguf("").ok());
  EXPECT_FALSE(split_for_gguf("default").ok());
  EXPECT_FALSE(split_for_tiktoken("p100k").ok());
}

TEST(PreTokenizer, SplitsAsTheBehaviorSays) {
  const auto with = [&](SplitBehavior behavior, bool invert = false) {
    return split({{std::string("-"), behavior, invert}}, "the-final--countdown");
  };
  EXPECT_EQ(with(SplitBehavior::removed), (Words{"the", "final", "countdown"}));
  EXPECT_EQ(with(SplitBehavior::isolated), (Words{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(with(SplitBehavior::merged_with_previous), (Words{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(with(SplitBehavior::merged_with_next), (Words{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(with(SplitBehavior::contiguous), (Words{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(with(SplitBehavior::removed, true), (Words{"-", "-", "-"}));
}

TEST(PreTokenizer, HasALimitOfStages) {
  PreTokenizer pre_tokenizer;
  for (size_t i = 0; i < PreTokenizer::kMaxStages; ++i) {
    EXPECT_TRUE(pre_tokenizer.add({std::string("x")}).ok());
  }
  EXPECT_FALSE(pre_tokenizer.add({std::string("x")}).ok());
}

TEST(SplitRegex, RefusesWhatItCannotCompileOrWouldMisread) {
  for (const char* pattern : {"(", "\\h+", "[a-z&&[^b]]", "[a[bc]]", "\\p{Frob}", "[\\Wa]"}) {
    const auto regex = SplitRegex::compile(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_NE(status_message(regex.status()).find(pattern), std::string::npos);
  }
  EXPECT_TRUE(SplitRegex::compile("[[:alpha:]]+|\\w+|\\b").ok());
}

TEST(SplitRegex, ALimitEndsTheSearchNotTheProcess) {
  const auto regex = SplitRegex::compile("(a+)+$");
  ASSERT_TRUE(regex.ok());
  const std::string text = std::string(5000, 'a') + "b";
  std::string joined;
  for (const std::string& word : split({{*regex}}, text)) joined += word;
  EXPECT_EQ(joined, text);
}

TEST(SplitRegex, EmptyMatchesSplit) {
  const auto regex = SplitRegex::compile("(?=[0-9]{3}$)");
  ASSERT_TRUE(regex.ok());
  EXPECT_EQ(split({{*regex}}, "12345"), (Words{"12", "345"}));
}

}  // namespace
}  // namespace millrace
