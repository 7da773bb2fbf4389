#include "engine/sample/sampling_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

TEST(SamplingState, BansEveryEndUntilTheMinimumOfGeneratedTokens) {
  StopRules stop;
  stop.min_tokens = 2;
  stop.stop_tokens = {9};
  SamplingState state({}, stop, {2, 7}, {5, 5, 5}, 3);
  EXPECT_THAT(state.row().banned_tokens, UnorderedElementsAre(2, 7, 9));
  state.accept(4);
  EXPECT_THAT(state.row().banned_tokens, UnorderedElementsAre(2, 7, 9));
  state.accept(4);
  EXPECT_THAT(state.row().banned_tokens, IsEmpty());
}

TEST(SamplingState, BansTheLastTokenOfABadWordAfterItsBeginning) {
  SamplingParams params;
  params.bad_words = {{4}, {1, 2, 3}};
  SamplingState state(params, {}, {}, {1, 2}, 2);
  EXPECT_THAT(state.row().banned_tokens, ElementsAre(4)) << "the prompt is not the answer";
  state.accept(1);
  EXPECT_THAT(state.row().banned_tokens, ElementsAre(4));
  state.accept(2);
  EXPECT_THAT(state.row().banned_tokens, ElementsAre(4, 3));
  state.accept(5);
  EXPECT_THAT(state.row().banned_tokens, ElementsAre(4));
}

TEST(SamplingState, CountsOutputsApartFromThePrompt) {
  SamplingParams params;
  params.frequency_penalty = 0.5f;
  SamplingState state(params, {}, {}, {8, 8, 6}, 3);
  state.accept(6);
  state.accept(3);
  state.accept(3);
  const SamplingRow row = state.row();
  EXPECT_THAT(row.seen_tokens, ElementsAre(8, 6, 3));
  EXPECT_THAT(row.seen_output_counts, ElementsAre(0, 1, 2));
}

TEST(SamplingState, IsTheSameAfterItWasRebuiltFromItsTokens) {
  SamplingParams params;
  params.presence_penalty = 1.0f;
  params.seed = 11;
  StopRules stop;
  stop.min_tokens = 3;
  SamplingState lived(params, stop, {2}, {1, 4}, 2);
  lived.accept(9);
  lived.accept(4);
  SamplingState rebuilt(params, stop, {2}, {1, 4, 9, 4}, 2);
  const SamplingRow a = lived.row(), b = rebuilt.row();
  EXPECT_EQ(a.position, b.position);
  EXPECT_EQ(a.position, 4u);
  EXPECT_TRUE(std::equal(a.seen_tokens.begin(), a.seen_tokens.end(), b.seen_tokens.begin(),
                         b.seen_tokens.end()));
  EXPECT_TRUE(std::equal(a.seen_output_counts.begin(), a.seen_output_counts.end(),
                         b.seen_output_counts.begin(), b.seen_output_counts.end()));
  EXPECT_THAT(b.banned_tokens, ElementsAre(2));
  EXPECT_EQ(rebuilt.last_token(), 4);
}

}  // namespace
}  // namespace millrace
