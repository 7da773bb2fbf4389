#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/ops.h"
#include "tests/kernels/context_fixture.h"
#include "tests/kernels/sampling_fixture.h"

namespace millrace {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplingRow greedy() { return {.temperature = 0.0f}; }

std::vector<SampledToken> sample_rows(const Ctx& c, std::vector<float> logits,
                                      const std::vector<SamplingRow>& rows,
                                      std::span<const int32_t> invalid = {}) {
  const auto n = static_cast<int64_t>(rows.size());
  std::vector<SampledToken> out(rows.size());
  sample(c, out, Tensor(logits.data(), DType::f32, {n, static_cast<int64_t>(logits.size()) / n}),
         rows, invalid);
  return out;
}

SampledToken sample_one(const Ctx& c, const std::vector<float>& logits, const SamplingRow& row,
                        std::span<const int32_t> invalid = {}) {
  return sample_rows(c, logits, {row}, invalid)[0];
}

std::vector<int> draw_many(const Ctx& c, const std::vector<float>& logits, SamplingRow row,
                           int draws) {
  std::vector<int> counts(logits.size());
  for (int i = 0; i < draws; ++i) {
    row.position = static_cast<uint64_t>(i);
    const int32_t token = sample_one(c, logits, row).token;
    EXPECT_GE(token, 0);
    ++counts.at(static_cast<size_t>(token));
  }
  return counts;
}

bool same(const SampledToken& a, const SampledToken& b) {
  return a.token == b.token && a.logprob == b.logprob && a.num_top == b.num_top &&
         std::memcmp(a.top, b.top, sizeof(TokenLogprob) * static_cast<size_t>(a.num_top)) == 0;
}

class SampleTest : public testing::TestWithParam<CpuLevel> {
 protected:
  void SetUp() override { SKIP_WITHOUT_LEVEL(GetParam()); }
  TestContext c_{has_level(GetParam()) ? GetParam() : CpuLevel::reference};
};
INSTANTIATE_TEST_SUITE_P(Levels, SampleTest,
                         testing::Values(CpuLevel::reference, CpuLevel::avx2, CpuLevel::avx512),
                         [](const auto& info) { return cpu_level_name(info.param); });

TEST_P(SampleTest, GreedyTakesTheBestAndOfEqualsTheLowestId) {
  for (const int vocab : {1, 2, 15, 16, 17, 63, 64, 65, 128, 1000}) {
    auto logits = random_floats(static_cast<size_t>(vocab), static_cast<uint32_t>(vocab));
    for (const int best : {0, vocab / 2, vocab - 1}) {
      auto x = logits;
      x[best] = x[vocab - 1] = 100.0f;
      EXPECT_EQ(sample_one(c_, x, greedy()).token, best);
    }
    for (float& x : logits) x = -1e30f;
    EXPECT_EQ(sample_one(c_, logits, greedy()).token, 0);
  }
}

TEST_P(SampleTest, ARowThatCannotBeDecidedSaysSoAndHarmsNoOther) {
  constexpr int kVocab = 100;
  const auto good = random_floats(kVocab, 1);
  const SamplingRow drawn{.temperature = 0.8f, .top_p = 0.9f, .seed = 5, .num_logprobs = 2};
  const auto alone = sample_one(c_, good, drawn);
  for (const int broken : {0, 50, kVocab - 1}) {
    for (const float value : {kNan, kInfinity}) {
      for (const SamplingRow& row : {greedy(), drawn}) {
        auto bad = good;
        bad[broken] = value;
        auto logits = bad;
        logits.insert(logits.end(), good.begin(), good.end());
        const auto out = sample_rows(c_, logits, {row, drawn});
        EXPECT_EQ(out[0].token, -1);
        EXPECT_TRUE(same(out[1], alone));
      }
    }
  }
  const std::vector<float> nothing(kVocab, -kInfinity);
  EXPECT_EQ(sample_one(c_, nothing, greedy()).token, -1);
  EXPECT_EQ(sample_one(c_, nothing, drawn).token, -1);
  const std::vector<int32_t> only = {7};
  EXPECT_EQ(sample_one(c_, good, {.banned_tokens = only, .allowed_tokens = only}).token, -1);
}

TEST_P(SampleTest, LimitsThatChangeNothing) {
  constexpr int kVocab = 130;
  const auto logits = random_floats(kVocab, 3);
  for (uint64_t position = 0; position < 50; ++position) {
    const SamplingRow plain{.seed = 1, .position = position};
    const int32_t expected = sample_one(c_, logits, plain).token;
    for (const int32_t top_k : {-1, 0, kVocab, kVocab + 1}) {
      SamplingRow row = plain;
      row.top_k = top_k;
      EXPECT_EQ(sample_one(c_, logits, row).token, expected) << top_k;
    }
    SamplingRow row = plain;
    row.top_p = row.typical_p = 1.0f;
    row.min_p = 0.0f;
    EXPECT_EQ(sample_one(c_, logits, row).token, expected);
  }
}

TEST_P(SampleTest, LimitsThatLeaveTheBest) {
  auto logits = random_floats(1000, 4);
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  logits[best + 1] = std::nextafter(logits[best], -100.0f);  // all but as good
  for (uint64_t position = 0; position < 30; ++position) {
    for (SamplingRow row :
         {SamplingRow{.top_p = 0.0f}, SamplingRow{.top_p = 1e-9f}, SamplingRow{.min_p = 1.0f},
          SamplingRow{.top_k = 1}, SamplingRow{.temperature = 1e-9f}}) {
      row.seed = 1;
      row.position = position;
      EXPECT_EQ(sample_one(c_, logits, row).token, best);
    }
  }
}

TEST_P(SampleTest, DrawsFollowTheDistributionOfALiteralSampler) {
  const auto logits = random_floats(300, 5, 2.0f);
  const std::vector<int32_t> seen = {3, 8, 250, 299, 1}, counts = {0, 0, 1, 7, 2};
  const std::vector<int32_t> banned = {0, 17}, allowed = {0, 1, 5, 6, 7, 100, 200, 201, 299};
  const std::vector<TokenLogprob> bias = {{5, 3.0f}, {6, -100.0f}, {299, 2.0f}};
  const SamplingRow rows[] = {
      {},
      {.temperature = 0.5f},
      {.temperature = 3.0f},
      {.top_p = 0.5f},
      {.temperature = 2.0f, .top_p = 0.95f},
      {.min_p = 0.1f},
      {.top_k = 2},
      {.temperature = 2.0f, .top_k = 4},
      {.temperature = 2.0f, .top_k = 50},
      {.typical_p = 0.6f},
      {.temperature = 2.0f, .top_p = 0.9f, .min_p = 0.02f, .typical_p = 0.9f, .top_k = 40},
      {.temperature = 2.0f, .top_p = 0.8f, .min_p = 0.01f},
      {.repetition_penalty = 1.5f, .seen_tokens = seen, .seen_output_counts = counts},
      {.presence_penalty = 1.0f,
       .frequency_penalty = -0.5f,
       .seen_tokens = seen,
       .seen_output_counts = counts},
      {.top_p = 0.9f, .logit_bias = bias, .banned_tokens = banned, .allowed_tokens = allowed},
  };
  for (size_t i = 0; i < std::size(rows); ++i) {
    SamplingRow row = rows[i];
    row.seed = 1000 + i;
    const auto expected = sampling_distribution(logits, row);
    const auto counts_drawn = draw_many(c_, logits, row, 4000);
    for (size_t t = 0; t < expected.size(); ++t)
      EXPECT_TRUE(expected[t] > 0.0 || counts_drawn[t] == 0) << "row " << i << " token " << t;
    const ChiSquare chi2 = chi_square(counts_drawn, expected);
    EXPECT_LT(chi2.value, chi2.limit) << "row " << i;
  }
}

// So many tokens carry the mass that the floor under the nucleus is searched for.
TEST_P(SampleTest, AWideNucleusIsExact) {
  const auto logits = random_floats(8000, 6, 2.0f);
  const SamplingRow row{.top_p = 0.9f, .seed = 9};
  const auto expected = sampling_distribution(logits, row);
  const auto counts = draw_many(c_, logits, row, 1500);
  std::vector<int> parts(20);
  std::vector<double> mass(20);
  double before = 0;
  for (size_t t = 0; t < expected.size(); ++t) {
    EXPECT_TRUE(expected[t] > 0.0 || counts[t] == 0) << t;
    const auto part = std::min<size_t>(19, static_cast<size_t>(before * 20));
    parts[part] += counts[t];
    mass[part] += expected[t];
    before += expected[t];
  }
  const ChiSquare chi2 = chi_square(parts, mass);
  EXPECT_LT(chi2.value, chi2.limit);
}

TEST_P(SampleTest, EqualLogitsKeepTheLowestIds) {
  const std::vector<float> logits(500, 2.5f);
  const auto counts = draw_many(c_, logits, {.top_k = 3}, 200);
  EXPECT_GT(std::min({counts[0], counts[1], counts[2]}), 0);
  EXPECT_EQ(counts[0] + counts[1] + counts[2], 200);
  // 0.1 of the mass of 500 equals is exactly 50 tokens, give or take the rounding of 0.1.
  const auto nucleus = draw_many(c_, logits, {.top_p = 0.1f}, 500);
  EXPECT_EQ(std::count_if(nucleus.begin() + 51, nucleus.end(), [](int n) { return n > 0; }), 0);
}

TEST_P(SampleTest, NeitherNeighboursNorThreadsChangeARow) {
  constexpr int kVocab = 1000, kRows = 9;
  const auto logits = random_floats(kVocab * kRows, 7, 2.0f);
  std::vector<SamplingRow> rows;
  for (int r = 0; r < kRows; ++r) {
    SamplingRow row{.temperature = r % 3 == 0 ? 0.0f : 0.8f, .seed = 42, .num_logprobs = r};
    if (r % 2) row.top_p = 0.9f;
    if (r == 4) row.top_k = 5;
    rows.push_back(row);
  }
  const auto all = sample_rows(TestContext(GetParam(), 1), logits, rows);
  for (const int threads : {2, 3}) {
    const auto again = sample_rows(TestContext(GetParam(), threads), logits, rows);
    for (int r = 0; r < kRows; ++r) EXPECT_TRUE(same(again[r], all[r])) << r;
  }
  for (int r = 0; r < kRows; ++r) {
    const std::vector<float> own(logits.begin() + r * kVocab, logits.begin() + (r + 1) * kVocab);
    EXPECT_TRUE(same(sample_one(c_, own, rows[r]), all[r])) << r;
  }
}

TEST_P(SampleTest, SeedAndPositionDecideTheDraw) {
  const auto logits = random_floats(1000, 8, 0.5f);
  int equal_positions = 0, equal_seeds = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    const int32_t token = sample_one(c_, logits, {.seed = 1, .position = i}).token;
    EXPECT_EQ(sample_one(c_, logits, {.seed = 1, .position = i}).token, token);
    equal_positions += sample_one(c_, logits, {.seed = 1, .position = i + 1}).token == token;
    equal_seeds += sample_one(c_, logits, {.seed = 2, .position = i}).token == token;
  }
  EXPECT_LT(equal_positions, 10);
  EXPECT_LT(equal_seeds, 10);
}

TEST_P(SampleTest, PenaltiesMoveTheGreedyChoice) {
  const std::vector<float> logits = {4.0f, 3.0f, 2.5f, -1.0f};
  const std::vector<int32_t> first = {0}, prompt_only = {0}, once = {1}, twice = {2};
  SamplingRow row = greedy();
  row.seen_tokens = first;
  row.seen_output_counts = prompt_only;
  row.repetition_penalty = 1.5f;
  EXPECT_EQ(sample_one(c_, logits, row).token, 1);  // 4 / 1.5 = 2.67; the prompt counts
  row.repetition_penalty = 1.0f;
  row.presence_penalty = row.frequency_penalty = 2.0f;
  EXPECT_EQ(sample_one(c_, logits, row).token, 0);  // these count the output only
  row.seen_output_counts = once;
  row.frequency_penalty = 0.0f;
  EXPECT_EQ(sample_one(c_, logits, row).token, 1);  // 4 - 2
  row.presence_penalty = 0.0f;
  row.frequency_penalty = 0.6f;
  EXPECT_EQ(sample_one(c_, logits, row).token, 0);  // 4 - 0.6
  row.seen_output_counts = twice;
  EXPECT_EQ(sample_one(c_, logits, row).token, 1);  // 4 - 1.2
  // A negative logit is multiplied.
  const std::vector<float> negative = {-1.0f, -1.2f};
  SamplingRow repeated = greedy();
  repeated.seen_tokens = first;
  repeated.seen_output_counts = prompt_only;
  repeated.repetition_penalty = 1.5f;
  EXPECT_EQ(sample_one(c_, negative, repeated).token, 1);
}

TEST_P(SampleTest, LogprobsAreThoseOfTheUntouchedLogits) {
  const auto logits = random_floats(700, 10, 3.0f);
  const auto expected = raw_logprobs(logits, {});
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return expected[a] > expected[b]; });

  const std::vector<int32_t> banned = {order[0], order[1], 3}, only = {order[600]};
  const std::vector<TokenLogprob> bias = {{order[5], 50.0f}};
  SamplingRow rows[] = {greedy(), {.temperature = 0.3f, .top_k = 4}, greedy(), greedy(), greedy()};
  rows[2].banned_tokens = banned;
  rows[3].allowed_tokens = only;
  rows[4].logit_bias = bias;
  const int32_t chosen[] = {order[0], -1, order[2], order[600], order[5]};
  for (size_t i = 0; i < std::size(rows); ++i) {
    for (const int num : {-1, 0, 1, 5, kMaxTopLogprobs}) {
      rows[i].num_logprobs = num;
      const SampledToken out = sample_one(c_, logits, rows[i]);
      EXPECT_TRUE(chosen[i] < 0 || out.token == chosen[i]) << i;
      ASSERT_EQ(out.num_top, std::max(num, 0));
      if (num < 0) continue;
      EXPECT_NEAR(out.logprob, expected[out.token], 2e-5);
      for (int k = 0; k < num; ++k) {
        EXPECT_EQ(out.top[k].token, order[k]);
        EXPECT_NEAR(out.top[k].logprob, expected[order[k]], 2e-5);
      }
    }
  }
}

TEST_P(SampleTest, TopLogprobsAreFiniteAndNoMoreThanThereAre) {
  std::vector<float> logits(200, -kInfinity);
  logits[150] = 1.0f;
  logits[7] = 2.0f;
  SamplingRow row = greedy();
  row.num_logprobs = 20;
  const SampledToken out = sample_one(c_, logits, row);
  ASSERT_EQ(out.num_top, 2);
  EXPECT_EQ(out.top[0].token, 7);
  EXPECT_EQ(out.top[1].token, 150);
  EXPECT_NEAR(std::exp(out.top[0].logprob) + std::exp(out.top[1].logprob), 1.0, 1e-6);
}

TEST_P(SampleTest, InvalidTokensAreNeverChosenReportedOrCounted) {
  auto logits = random_floats(130, 11);
  const std::vector<int32_t> invalid = {5, 64, 65, 128, 129};
  const auto expected = raw_logprobs(logits, invalid);
  for (const int32_t token : invalid) logits[token] = token == 64 ? kNan : 1000.0f;
  const std::vector<int32_t> allowed = {5, 6, 128};
  for (uint64_t position = 0; position < 40; ++position) {
    for (SamplingRow row : {greedy(), SamplingRow{}, SamplingRow{.top_p = 0.9f},
                            SamplingRow{.allowed_tokens = allowed}}) {
      row.position = position;
      row.num_logprobs = 20;
      const SampledToken out = sample_one(c_, logits, row, invalid);
      ASSERT_GE(out.token, 0);
      EXPECT_FALSE(std::binary_search(invalid.begin(), invalid.end(), out.token));
      EXPECT_NEAR(out.logprob, expected[out.token], 2e-5);
      for (int k = 0; k < out.num_top; ++k)
        EXPECT_FALSE(std::binary_search(invalid.begin(), invalid.end(), out.top[k].token));
    }
  }
}

TEST_P(SampleTest, TokensOutsideOfTheVocabularyAreIgnored) {
  const auto logits = random_floats(50, 12);
  const std::vector<int32_t> outside = {-1, 50, 1 << 30, std::numeric_limits<int32_t>::min()};
  const std::vector<int32_t> counts(4, 1);
  const std::vector<TokenLogprob> bias = {{-1, 5.0f}, {50, 5.0f}};
  const SamplingRow row{.repetition_penalty = 2.0f,
                        .seen_tokens = outside,
                        .seen_output_counts = counts,
                        .logit_bias = bias,
                        .banned_tokens = outside};
  EXPECT_EQ(sample_one(c_, logits, row, outside).token, sample_one(c_, logits, {}).token);
}

TEST_P(SampleTest, ScoresTheTargets) {
  constexpr int kVocab = 333, kRows = 5;
  auto logits = random_floats(kVocab * kRows, 13, 2.0f);
  logits[4 * kVocab + 9] = kNan;
  const std::vector<int32_t> targets = {0, 100, 332, 64, 1}, invalid = {7, 331};
  const auto before = logits;
  for (const int threads : {1, 3}) {
    for (const int num_top : {0, 3, 20}) {
      TestContext c(GetParam(), threads);
      std::vector<SampledToken> out(kRows);
      score_tokens(c, out, Tensor(logits.data(), DType::f32, {kRows, kVocab}), targets, num_top,
                   invalid);
      EXPECT_EQ(std::memcmp(logits.data(), before.data(), logits.size() * sizeof(float)), 0);
      EXPECT_EQ(out[4].token, -1);
      for (int r = 0; r < 4; ++r) {
        const std::vector<float> row(logits.begin() + r * kVocab,
                                     logits.begin() + (r + 1) * kVocab);
        const auto expected = raw_logprobs(row, invalid);
        EXPECT_EQ(out[r].token, targets[r]);
        EXPECT_NEAR(out[r].logprob, expected[targets[r]], 2e-5);
        ASSERT_EQ(out[r].num_top, num_top);
        for (int k = 0; k < num_top; ++k) {
          EXPECT_NEAR(out[r].top[k].logprob, expected[out[r].top[k].token], 2e-5);
          EXPECT_GE(out[r].top[std::max(k - 1, 0)].logprob, out[r].top[k].logprob);
        }
      }
    }
  }
}

TEST_P(SampleTest, AnImpossibleTargetScoresTheFloor) {
  auto logits = random_floats(64, 14);
  const std::vector<int32_t> target = {3};
  std::vector<SampledToken> out(1);
  score_tokens(c_, out, Tensor(logits.data(), DType::f32, {1, 64}), target, 1, target);
  EXPECT_EQ(out[0].token, 3);
  EXPECT_EQ(out[0].logprob, -9999.0f);
}

}  // namespace
}  // namespace millrace
