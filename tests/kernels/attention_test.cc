#include <gtest/gtest.h>

#include <cstring>

#include "tests/kernels/attention_fixture.h"

namespace millrace {
namespace {

constexpr CpuLevel kLevels[] = {CpuLevel::reference, CpuLevel::avx2, CpuLevel::avx512};

// Probabilities that are rounded to bf16 err by up to 2^-9 of themselves; values are about 1.
double tolerance(CpuLevel level, DType kv) {
  return level == CpuLevel::avx512 && kv == DType::bf16 ? 0x1p-8 : 1e-5;
}

void expect_close(const std::vector<float>& out, const std::vector<double>& expected,
                  double tolerance) {
  double worst = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_TRUE(std::isfinite(out[i])) << i;
    worst = std::max(worst, std::abs(out[i] - expected[i]));
  }
  EXPECT_LT(worst, tolerance);
}

bool same_bits(const float* a, const float* b, int64_t n) {
  return std::memcmp(a, b, static_cast<size_t>(n) * sizeof(float)) == 0;
}

using LevelAndType = std::tuple<CpuLevel, DType>;

class AttentionTest : public testing::TestWithParam<LevelAndType> {
 protected:
  void SetUp() override { SKIP_WITHOUT_LEVEL(level()); }
  CpuLevel level() const { return std::get<0>(GetParam()); }
  DType kv() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Levels, AttentionTest,
                         testing::Combine(testing::ValuesIn(kLevels),
                                          testing::Values(DType::f32, DType::bf16)),
                         [](const auto& info) {
                           return std::string(cpu_level_name(std::get<0>(info.param))) + "_" +
                                  dtype_name(std::get<1>(info.param));
                         });

TEST_P(AttentionTest, EqualsDoublePrecisionForEveryHeadShape) {
  TestContext c(level());
  const int groups[][2] = {{2, 2}, {3, 1}, {4, 1}, {9, 3}, {7, 1}};
  for (const int dim : {16, 64, 80, 96, 128, 256}) {
    for (const auto& [heads, kv_heads] : groups) {
      for (const int window : {0, 17}) {
        SCOPED_TRACE(testing::Message() << "D " << dim << " heads " << heads << ":" << kv_heads
                                        << " window " << window);
        AttentionProblem p({.kv = kv(),
                            .head_dim = dim,
                            .heads = heads,
                            .kv_heads = kv_heads,
                            .window = window,
                            .lengths = {1, 16, 33, 257, 40},
                            .new_tokens = {1, 1, 1, 1, 9}});
        expect_close(p.run(c), p.expected(), tolerance(level(), kv()));
      }
    }
  }
}

TEST_P(AttentionTest, EqualsDoublePrecisionAroundEveryBoundary) {
  TestContext c(level());
  for (const int block_size : {16, 32, 64}) {
    for (const int window : {0, 1, 16, 17, 100}) {
      SCOPED_TRACE(testing::Message() << "block " << block_size << " window " << window);
      AttentionProblem p({.kv = kv(),
                          .head_dim = 32,
                          .heads = 3,
                          .kv_heads = 1,
                          .block_size = block_size,
                          .window = window,
                          .lengths = {1, 2, 15, 16, 17, 31, 32, 33, 255, 256, 257, 511, 513, 300},
                          .new_tokens = {1, 2, 15, 3, 17, 1, 2, 33, 1, 5, 2, 1, 258, 20}});
      expect_close(p.run(c), p.expected(), tolerance(level(), kv()));
    }
  }
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  TestContext c(level());
  AttentionProblem p({.kv = kv(), .lengths = {300}, .new_tokens = {4}});
  for (float& x : p.q()) x *= 64.0f;
  const auto out = p.run(c);
  const auto expected = p.expected();
  for (size_t i = 0; i < out.size(); ++i)
    ASSERT_NEAR(out[i], expected[i], 1e-3 + tolerance(level(), kv())) << i;
}

TEST_P(AttentionTest, ARowAloneHasTheBitsItHasInABatch) {
  TestContext one(level()), three(level(), 3);
  AttentionProblem p(
      {.kv = kv(), .lengths = {700, 1, 256, 90, 33}, .new_tokens = {1, 1, 1, 70, 2}});
  const auto all = p.run(one);
  for (const AttentionSequence& s : p.sequences()) {
    for (const Ctx* c : {&one.ctx(), &three.ctx()}) {
      const auto alone = p.run(*c, {s});
      EXPECT_TRUE(same_bits(&alone[s.q_begin * p.row_size()], &all[s.q_begin * p.row_size()],
                            s.q_len * p.row_size()))
          << "kv_len " << s.kv_len << " threads " << c->pool->size();
    }
  }
}

TEST_P(AttentionTest, AnyChunkingOfAPromptGivesTheSameBits) {
  for (const int window : {0, 1, 50}) {
    AttentionProblem p({.kv = kv(), .window = window, .lengths = {530}, .new_tokens = {530}});
    const AttentionSequence whole = p.sequences()[0];
    TestContext two(level(), 2), one(level());
    const auto expected = p.run(two);
    for (const int chunk : {1, 7, 16, 64, 300}) {
      for (int begin = 0; begin < whole.q_len; begin += chunk) {
        const int n = std::min(chunk, whole.q_len - begin);
        if (chunk == 1 && begin % 5 != 0 && begin % 16 > 1) continue;
        const auto part = p.run(begin % 2 ? one : two, {{begin, n, begin + n, whole.blocks}});
        ASSERT_TRUE(same_bits(&part[begin * p.row_size()], &expected[begin * p.row_size()],
                              n * p.row_size()))
            << "chunk " << chunk << " at " << begin << " window " << window;
      }
    }
  }
}

TEST_P(AttentionTest, TheNumberOfThreadsDoesNotMatter) {
  for (const std::vector<int>& fresh : {std::vector<int>{1, 1}, std::vector<int>{100, 1}}) {
    AttentionProblem p({.kv = kv(), .lengths = {5000, 300}, .new_tokens = fresh});
    const auto expected = p.run(TestContext(level(), 1));
    for (const int threads : {2, 3, 8}) {
      const auto out = p.run(TestContext(level(), threads));
      EXPECT_TRUE(same_bits(out.data(), expected.data(), static_cast<int64_t>(out.size())))
          << threads;
    }
  }
}

TEST_P(AttentionTest, UnusedSlotsMayHoldAnything) {
  constexpr uint16_t kNan = 0x7fc1, kInfinity = 0x7f80, kLargest = 0xff7f;
  AttentionCase shape{.kv = kv(),
                      .block_size = 32,
                      .window = 40,
                      .lengths = {5, 17, 300, 270},
                      .new_tokens = {1, 17, 1, 20}};
  TestContext c(level(), 2);
  const auto expected = AttentionProblem(shape).run(c);
  for (const uint16_t garbage : {kNan, kInfinity, kLargest}) {
    shape.unused = garbage;
    const auto out = AttentionProblem(shape).run(c);
    EXPECT_TRUE(same_bits(out.data(), expected.data(), static_cast<int64_t>(out.size())))
        << garbage;
  }
}

TEST_P(AttentionTest, ADryRunTakesTheScratchThatTheRunNeeds) {
  AttentionProblem p({.kv = kv(), .lengths = {1300, 40}, .new_tokens = {1, 30}});
  Pool pool(2);
  Arena measuring;
  Ctx c;
  c.cpu_level = level();
  c.pool = &pool;
  c.arena = &measuring;
  p.run(c);
  EXPECT_EQ(measuring.used(), 0u);
  TestContext exact(level(), 2, measuring.high_water());
  expect_close(p.run(exact), p.expected(), tolerance(level(), kv()));
}

TEST(AttentionDeathTest, RefusesAHeadSizeThatIsNoMultipleOfSixteen) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  AttentionProblem p({.kv = DType::f32, .head_dim = 24, .lengths = {1}, .new_tokens = {1}});
  TestContext c(CpuLevel::reference);
  EXPECT_DEATH(p.run(c), "multiple of 16");
}

}  // namespace
}  // namespace millrace
