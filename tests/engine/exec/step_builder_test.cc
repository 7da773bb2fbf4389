#include "engine/exec/step_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using testing::ElementsAre;

TEST(StepBuilder, LaysSequencesOneAfterTheOther) {
  std::vector<SamplingState> states(2);
  states[1] = SamplingState({}, {}, {}, {7, 42}, 1);
  StepPlan plan;
  StepSequence chunk;  // tokens 14..17 of slot 0, across a block border, scored
  chunk.slot = 0;
  chunk.start = 14;
  chunk.count = 4;
  chunk.tokens = {100, 101, 102, 103};
  chunk.blocks = {{5, 3}};
  chunk.score_targets = {101, 102};
  StepSequence decode;  // its token is still on the device
  decode.slot = 1;
  decode.start = 16;
  decode.count = 1;
  decode.from_device = true;
  decode.sample = true;
  decode.blocks = {{-1, 9}};
  plan.sequences = {chunk, decode};

  StepBuilder builder(1, 16);
  for (int round = 0; round < 2; ++round) {  // buffers are reused
    const Step step = builder.build(plan, states);
    EXPECT_THAT(step.tokens, ElementsAre(100, 101, 102, 103, 42));
    EXPECT_THAT(step.positions, ElementsAre(14, 15, 16, 17, 16));
    ASSERT_EQ(step.groups.size(), 1u);
    EXPECT_THAT(step.groups[0].slots, ElementsAre(94, 95, 48, 49, 144));
    ASSERT_EQ(step.groups[0].sequences.size(), 2u);
    EXPECT_EQ(step.groups[0].sequences[0].kv_len, 18);
    EXPECT_EQ(step.groups[0].sequences[1].q_begin, 4);
    EXPECT_EQ(step.groups[0].sequences[1].kv_len, 17);
    EXPECT_THAT(step.logit_rows, ElementsAre(0, 1, 4));
    ASSERT_EQ(builder.logit_rows().size(), 3u);
    EXPECT_EQ(builder.logit_rows()[1].score_index, 1);
    EXPECT_EQ(builder.logit_rows()[2].sequence, 1);
    EXPECT_EQ(builder.logit_rows()[2].score_index, -1);
  }
}

}  // namespace
}  // namespace millrace
