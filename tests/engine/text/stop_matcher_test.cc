#include "engine/text/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace millrace {
namespace {

struct Outcome {
  std::string text;
  int matched = -1;
  bool operator==(const Outcome&) const = default;
};

// What the rule says, by trying every end position.
Outcome expected(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int best = -1;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (stops[i].empty() || !std::string_view(text).substr(0, end).ends_with(stops[i])) continue;
      if (best < 0 || stops[i].size() > stops[best].size()) best = static_cast<int>(i);
    }
    if (best >= 0) return {text.substr(0, end - stops[best].size()), best};
  }
  return {text, -1};
}

size_t longest_open_prefix(const std::string& text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size() && n <= text.size(); ++n) {
      if (std::string_view(text).ends_with(stop.substr(0, n))) longest = std::max(longest, n);
    }
  }
  return longest;
}

// Feeds `text` in pieces that end where `cuts` has a bit, and checks what is held on the way.
Outcome run(const std::string& text, const std::vector<std::string>& stops, uint64_t cuts) {
  StopMatcher matcher(stops);
  Outcome outcome;
  std::string piece;
  std::string fed;
  for (size_t i = 0; i < text.size(); ++i) {
    piece += text[i];
    if (i + 1 < text.size() && !(cuts >> i & 1)) continue;
    const StopMatcher::Result result = matcher.push(piece);
    fed += piece;
    piece.clear();
    outcome.text += result.text;
    outcome.matched = result.matched;
    if (result.matched >= 0) return outcome;
    EXPECT_EQ(matcher.held_bytes(), longest_open_prefix(fed, stops));
  }
  outcome.text += matcher.finish();
  return outcome;
}

void check_all_cuts(const std::string& text, const std::vector<std::string>& stops,
                    const std::string& answer) {
  for (uint64_t cuts = 0; cuts < 1u << (text.size() - 1); ++cuts) {
    ASSERT_EQ(run(text, stops, cuts), expected(text, stops)) << text << " " << cuts;
    ASSERT_EQ(run(text, stops, cuts).text, answer);
  }
}

TEST(StopMatcher, HoldsExactlyWhatMayBecomeAStopString) {
  check_all_cuts("stopword", {"stopword"}, "");
  check_all_cuts("?\n", {"\n"}, "?");
  check_all_cuts("blue", {"eel"}, "blue");
  check_all_cuts("aaab", {"aab"}, "a");
}

TEST(StopMatcher, PrefersTheEarliestEndAndThenTheLongest) {
  check_all_cuts("xabcd", {"abcd", "bc"}, "xa");
  check_all_cuts("xabc", {"c", "bc", "abc"}, "x");
  EXPECT_EQ(run("xabc", {"c", "bc", "abc"}, 0).matched, 2);
}

TEST(StopMatcher, EqualsTheRuleOnRandomTexts) {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    const auto word = [&](int max) {
      std::string out;
      for (int n = 1 + static_cast<int>(random() % max); n > 0; --n) {
        out += static_cast<char>('a' + random() % 2);
      }
      return out;
    };
    std::vector<std::string> stops;
    for (int n = static_cast<int>(random() % 4); n > 0; --n) stops.push_back(word(6));
    const std::string text = word(24);
    ASSERT_EQ(run(text, stops, random()), expected(text, stops)) << text;
  }
}

TEST(StopMatcher, CanKeepTheStopString) {
  StopMatcher matcher({"END"}, true);
  EXPECT_EQ(matcher.push("textE").text, "text");
  const StopMatcher::Result result = matcher.push("ND more");
  EXPECT_EQ(result.text, "END");
  EXPECT_EQ(result.matched, 0);
}

TEST(StopMatcher, IgnoresEmptyStopStrings) {
  StopMatcher matcher({"", ""});
  const StopMatcher::Result result = matcher.push("abc");
  EXPECT_EQ(result.text, "abc");
  EXPECT_EQ(result.matched, -1);
  EXPECT_EQ(matcher.held_bytes(), 0u);
}

}  // namespace
}  // namespace millrace
