#include "engine/sched/step_pace.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

// A machine on which a step costs a fixed part, and each decoding or prompt row its own.
struct Machine {
  double fixed, decode_row, prompt_row;
  double seconds(int64_t decode, int64_t prompt) const {
    return fixed + decode_row * static_cast<double>(decode) +
           prompt_row * static_cast<double>(prompt);
  }
};
constexpr Machine kMachine = {20e-3, 0.5e-3, 0.6e-3};

StepPace trained(double target, int64_t decode) {
  StepPace pace(target);
  for (int i = 0; i < 20; ++i) {
    pace.observe(decode, 0, kMachine.seconds(decode, 0));
    pace.observe(decode, 64, kMachine.seconds(decode, 64));
  }
  return pace;
}

TEST(StepPace, NothingLimitsAPromptWhenNobodyDecodes) {
  EXPECT_EQ(StepPace().prompt_rows(0, 512), 512);
  EXPECT_EQ(trained(0.0, 8).prompt_rows(0, 512), 512);
}

TEST(StepPace, BeginsWithSmallChunks) {
  EXPECT_EQ(StepPace().prompt_rows(3, 512), StepPace::kFirstRows);
  EXPECT_EQ(StepPace().prompt_rows(3, 7), 7);
}

TEST(StepPace, AStepWithPromptStaysWithinTheStretch) {
  for (const int64_t decode : {1, 8, 32}) {
    const StepPace pace = trained(0.0, decode);
    const int64_t rows = pace.prompt_rows(decode, 512);
    const double alone = kMachine.seconds(decode, 0), mixed = kMachine.seconds(decode, rows);
    if (rows > StepPace::kLeastRows) {
      EXPECT_LE(mixed, alone * StepPace::kStretch * 1.02) << decode;
      EXPECT_GE(mixed, alone * StepPace::kStretch * 0.9) << decode;
    }
  }
}

TEST(StepPace, FastStepsMayLastAsLongAsNobodyNotices) {
  StepPace pace;
  for (int i = 0; i < 20; ++i) {
    pace.observe(2, 0, 3e-3);
    pace.observe(2, 32, 3e-3 + 32 * 0.3e-3);
  }
  EXPECT_NEAR(static_cast<double>(pace.prompt_rows(2, 512)), (50e-3 - 3e-3) / 0.3e-3, 2);
}

TEST(StepPace, ATargetIsMetOrTheLeastIsComputed) {
  EXPECT_EQ(trained(1e-3, 8).prompt_rows(8, 512), StepPace::kLeastRows);
  const int64_t rows = trained(50e-3, 8).prompt_rows(8, 512);
  EXPECT_NEAR(kMachine.seconds(8, rows), 50e-3, 1e-3);
  EXPECT_EQ(trained(60.0, 8).prompt_rows(8, 512), 512);
}

TEST(StepPace, BatchesThatWereNeverSeenAreJudgedByTheirNeighbours) {
  const StepPace pace = trained(0.0, 8);
  EXPECT_GE(pace.prompt_rows(32, 512), pace.prompt_rows(8, 512));
  EXPECT_GE(pace.prompt_rows(1, 512), StepPace::kLeastRows);
}

TEST(StepPace, OneHeldUpStepChangesLittle) {
  StepPace pace = trained(0.0, 8);
  const int64_t before = pace.prompt_rows(8, 512);
  pace.observe(8, 0, 5.0);
  EXPECT_LT(pace.prompt_rows(8, 512), before * 3 / 2);
  pace.observe(8, 64, 5.0);
  EXPECT_GT(pace.prompt_rows(8, 512), before / 2);
}

TEST(StepPace, FollowsAMachineThatSlowsDown) {
  StepPace pace = trained(60e-3, 8);
  const int64_t before = pace.prompt_rows(8, 512);
  for (int i = 0; i < 50; ++i) {
    pace.observe(8, 0, 2 * kMachine.seconds(8, 0));
    pace.observe(8, 16, 2 * kMachine.seconds(8, 16));
  }
  EXPECT_LT(pace.prompt_rows(8, 512), before / 2);
}

}  // namespace
}  // namespace millrace
