#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/ops.h"
#include "tests/kernels/packed_weight.h"

namespace millrace {
namespace {

constexpr float kEps = 1e-5f;
constexpr int64_t kLengths[] = {1, 2, 15, 16, 17, 63, 64, 65, 130, 576};

class ElementwiseTest : public testing::TestWithParam<CpuLevel> {
 protected:
  void SetUp() override { SKIP_WITHOUT_LEVEL(GetParam()); }
};

Tensor matrix(std::vector<float>& v, int64_t rows, int64_t cols) {
  return Tensor(v.data(), DType::f32, {rows, cols});
}

std::vector<double> rmsnorm(const std::vector<double>& x, const float* weight) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + kEps);
  std::vector<double> out;
  for (size_t i = 0; i < x.size(); ++i) out.push_back(x[i] * scale * weight[i]);
  return out;
}

TEST_P(ElementwiseTest, AddRmsNormMatchesDoublePrecision) {
  const TestContext context(GetParam(), 2);
  for (const int64_t cols : kLengths) {
    constexpr int64_t kRows = 3;
    const auto count = static_cast<size_t>(kRows * cols);
    std::vector<float> residual = random_floats(count, 1), delta = random_floats(count, 2);
    const std::vector<float> weight = random_floats(static_cast<size_t>(cols), 3);
    const std::vector<float> before = residual;
    std::vector<float> out(count, NAN);
    add_rmsnorm(context, matrix(out, kRows, cols), matrix(residual, kRows, cols),
                matrix(delta, kRows, cols), weight.data(), kEps);
    for (int64_t r = 0; r < kRows; ++r) {
      std::vector<double> sum;
      for (int64_t i = r * cols; i < (r + 1) * cols; ++i) {
        ASSERT_EQ(residual[i], before[i] + delta[i]);
        sum.push_back(residual[i]);
      }
      const std::vector<double> expected = rmsnorm(sum, weight.data());
      for (int64_t i = 0; i < cols; ++i)
        ASSERT_NEAR(out[r * cols + i], expected[i],
                    (static_cast<double>(cols) + 8) * 0x1p-24 * std::fabs(expected[i]));
    }
  }
}

TEST_P(ElementwiseTest, AddRmsNormKeepsToItsColumnsAndMayWriteOverDelta) {
  const TestContext context(GetParam(), 1);
  constexpr int64_t kRows = 2, kCols = 19, kStride = 24;
  std::vector<float> residual(kRows * kCols, 1.0f), weight(kCols, 2.0f);
  std::vector<float> wide(kRows * kStride, 3.0f);
  const Tensor delta = matrix(wide, kRows, kStride).columns(0, kCols);
  add_rmsnorm(context, delta, matrix(residual, kRows, kCols), delta, weight.data(), 0.0f);
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t i = 0; i < kStride; ++i)
      EXPECT_FLOAT_EQ(wide[r * kStride + i], i < kCols ? 2.0f : 3.0f);
}

TEST_P(ElementwiseTest, HeadRmsNormMatchesDoublePrecision) {
  const TestContext context(GetParam(), 2);
  for (const int64_t head_dim : kLengths) {
    constexpr int64_t kRows = 2, kHeads = 3;
    const int64_t stride = kHeads * head_dim + 7;
    std::vector<float> x = random_floats(static_cast<size_t>(kRows * stride), 4);
    const std::vector<float> weight = random_floats(static_cast<size_t>(head_dim), 5), before = x;
    Tensor t(x.data(), DType::f32, {kRows, kHeads, head_dim});
    t.strides[0] = stride;
    head_rmsnorm(context, t, weight.data(), kEps);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t h = 0; h < kHeads; ++h) {
        const auto begin = before.begin() + r * stride + h * head_dim;
        const std::vector<double> expected =
            rmsnorm(std::vector<double>(begin, begin + head_dim), weight.data());
        for (int64_t i = 0; i < head_dim; ++i)
          ASSERT_NEAR(x[r * stride + h * head_dim + i], expected[i],
                      (static_cast<double>(head_dim) + 8) * 0x1p-24 * std::fabs(expected[i]));
      }
      for (int64_t i = kHeads * head_dim; i < stride; ++i)
        ASSERT_EQ(x[r * stride + i], before[r * stride + i]);
    }
  }
}

TEST_P(ElementwiseTest, SiluMulMatchesDoublePrecision) {
  const TestContext context(GetParam(), 2);
  for (const int64_t cols : kLengths) {
    constexpr int64_t kRows = 2;
    std::vector<float> gate_up = random_floats(static_cast<size_t>(kRows * 2 * cols), 6, 10.0f);
    std::vector<float> out(static_cast<size_t>(kRows * cols), NAN);
    silu_mul(context, matrix(out, kRows, cols), matrix(gate_up, kRows, 2 * cols));
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t i = 0; i < cols; ++i) {
        const double g = gate_up[r * 2 * cols + i], up = gate_up[r * 2 * cols + cols + i];
        const double expected = g / (1 + std::exp(-g)) * up;
        // e^-g inherits the rounding of its argument, |g| units.
        ASSERT_NEAR(out[r * cols + i], expected,
                    (16 + 4 * std::fabs(g)) * 0x1p-24 * std::fabs(expected) + 1e-37);
      }
  }
}

TEST_P(ElementwiseTest, SiluOfExtremesHasNoSurprises) {
  const TestContext context(GetParam(), 1);
  std::vector<float> gate_up = {0.0f, 100.0f, -100.0f, 3e38f, -3e38f, NAN, 1, 1, 1, 1, 1, 1};
  std::vector<float> out(6);
  silu_mul(context, matrix(out, 1, 6), matrix(gate_up, 1, 12));
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[1], 100.0f);
  EXPECT_NEAR(out[2], 0.0f, 1e-36);
  EXPECT_EQ(out[3], 3e38f);
  EXPECT_EQ(out[4], 0.0f);
  EXPECT_TRUE(std::isnan(out[5]));
}

TEST_P(ElementwiseTest, ARowsBitsDependOnThatRowAlone) {
  constexpr int64_t kCols = 579, kMost = 257;
  const std::vector<float> weight = random_floats(kCols, 7);
  const std::vector<float> x = random_floats(kMost * kCols, 8);
  const auto run = [&](int threads, int64_t first, int64_t rows) {
    const TestContext context(GetParam(), threads);
    std::vector<float> residual(x.begin() + first * kCols, x.begin() + (first + rows) * kCols);
    std::vector<float> delta = residual, out(residual.size());
    add_rmsnorm(context, matrix(out, rows, kCols), matrix(residual, rows, kCols),
                matrix(delta, rows, kCols), weight.data(), kEps);
    return out;
  };
  const std::vector<float> all = run(1, 0, kMost);
  for (const int threads : {1, 3})
    for (const int64_t rows : {1, 2, 7, 33}) {
      const int64_t first = kMost - rows;
      EXPECT_EQ(std::memcmp(run(threads, first, rows).data(), all.data() + first * kCols,
                            static_cast<size_t>(rows * kCols) * 4),
                0)
          << rows;
    }
}

INSTANTIATE_TEST_SUITE_P(Levels, ElementwiseTest,
                         testing::Values(CpuLevel::reference, CpuLevel::avx2, CpuLevel::avx512),
                         [](const auto& level) { return cpu_level_name(level.param); });

TEST(EmbedTest, ReadsRowsOfEveryPackedFormat) {
  const TestContext context(CpuLevel::reference, 2);
  for (const TestFormat format : kTestFormats) {
    constexpr int64_t kVocab = 130, kHidden = 96;
    const PackedWeight table = PackedWeight::random(format, kVocab, kHidden, 9);
    const std::vector<int32_t> tokens = {0, 129, 63, 64, 64, 5};
    std::vector<float> out(tokens.size() * kHidden, NAN), expected(kHidden);
    embed(context, matrix(out, 6, kHidden), tokens, table.view());
    for (size_t t = 0; t < tokens.size(); ++t) {
      unpack_row(table.view(), tokens[t], expected.data());
      for (size_t i = 0; i < kHidden; ++i) ASSERT_EQ(out[t * kHidden + i], expected[i]);
    }
  }
}

TEST(EmbedTest, TokensOfOtherRanksGiveZeroRows) {
  const TestContext context(CpuLevel::reference, 1);
  const PackedWeight table = PackedWeight::random(TestFormat::bf16, 10, 32, 10);
  const std::vector<int32_t> tokens = {99, 100, 109, 110};
  std::vector<float> out(4 * 32, NAN), expected(32);
  embed(context, matrix(out, 4, 32), tokens, table.view(), 100);
  for (const size_t t : {0u, 3u})
    for (size_t i = 0; i < 32; ++i) EXPECT_EQ(out[t * 32 + i], 0.0f);
  for (const size_t t : {1u, 2u}) {
    unpack_row(table.view(), tokens[t] - 100, expected.data());
    for (size_t i = 0; i < 32; ++i) EXPECT_EQ(out[t * 32 + i], expected[i]);
  }
}

TEST(RowCopyTest, GatherTakesRowsInAnyOrderFromAnyStride) {
  const TestContext context(CpuLevel::reference, 2);
  std::vector<float> x = random_floats(5 * 8, 11), out(4 * 3, NAN);
  const std::vector<int32_t> rows = {4, 0, 0, 2};
  gather_rows(context, matrix(out, 4, 3), matrix(x, 5, 8).columns(2, 3), rows);
  for (size_t r = 0; r < 4; ++r)
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(out[r * 3 + i], x[static_cast<size_t>(rows[r]) * 8 + 2 + i]);
}

TEST(RowCopyTest, ZeroClearsEverything) {
  const TestContext context(CpuLevel::reference, 1);
  std::vector<float> x(70, NAN);
  zero(context, matrix(x, 7, 10));
  for (const float v : x) EXPECT_EQ(v, 0.0f);
}

TEST(CpuLevelTest, NamesRoundTrip) {
  for (const CpuLevel level : {CpuLevel::reference, CpuLevel::avx2, CpuLevel::avx512})
    EXPECT_EQ(parse_cpu_level(cpu_level_name(level)), level);
  EXPECT_FALSE(parse_cpu_level("AVX2").has_value());
  EXPECT_FALSE(parse_cpu_level("").has_value());
}

}  // namespace
}  // namespace millrace
