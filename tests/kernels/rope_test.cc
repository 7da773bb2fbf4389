#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/ops.h"
#include "tests/kernels/context_fixture.h"

namespace millrace {
namespace {

class RopeTest : public testing::TestWithParam<CpuLevel> {
 protected:
  void SetUp() override { SKIP_WITHOUT_LEVEL(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Levels, RopeTest,
                         testing::Values(CpuLevel::reference, CpuLevel::avx2, CpuLevel::avx512),
                         [](const auto& info) { return cpu_level_name(info.param); });

// q and k are views into one fused [T, (heads + 2 kv_heads) * D] buffer, as in a model.
TEST_P(RopeTest, EqualsDoublePrecisionOnViewsAndPartialRotation) {
  constexpr int64_t kPositions = 64, kHeads = 3, kKvHeads = 2;
  const std::vector<int32_t> positions = {0, 1, 63, 17, 17};
  const int64_t rows = static_cast<int64_t>(positions.size());
  TestContext c(GetParam(), 2);
  for (const int64_t dim : {16, 64, 80}) {
    for (const int64_t rotary : {dim, dim / 2, int64_t{6}}) {
      std::vector<float> cos, sin;
      for (int64_t i = 0; i < kPositions * rotary / 2; ++i) {
        cos.push_back(static_cast<float>(std::cos(0.37 * static_cast<double>(i))));
        sin.push_back(static_cast<float>(std::sin(0.37 * static_cast<double>(i))));
      }
      const int64_t width = (kHeads + 2 * kKvHeads) * dim;
      const auto before = random_floats(static_cast<size_t>(rows * width), 3);
      auto x = before;
      Tensor q(x.data(), DType::f32, {rows, kHeads, dim});
      Tensor k(x.data() + kHeads * dim, DType::f32, {rows, kKvHeads, dim});
      q.strides[0] = k.strides[0] = width;
      rope(c, q, k, positions, {cos.data(), sin.data(), kPositions, rotary});

      for (int64_t t = 0; t < rows; ++t) {
        for (int64_t i = 0; i < width; ++i) {
          const int64_t head = i / dim, d = i % dim, half = rotary / 2;
          const size_t at = static_cast<size_t>(t * width + i);
          if (head >= kHeads + kKvHeads || d >= rotary) {
            ASSERT_EQ(x[at], before[at]) << "outside of the rotated part";
            continue;
          }
          const size_t angle = static_cast<size_t>(positions[t] * half + d % half);
          const size_t other = d < half ? at + half : at - half;
          const double rotated = double{before[at]} * cos[angle] +
                                 (d < half ? -1.0 : 1.0) * double{before[other]} * sin[angle];
          ASSERT_NEAR(x[at], rotated, 1e-6) << "row " << t << " column " << i;
        }
      }
    }
  }
}

TEST_P(RopeTest, ARowsBitsDoNotDependOnTheOthers) {
  constexpr int64_t kRows = 7, kDim = 64;
  const auto table = random_floats(32 * kRows, 1);
  const auto before = random_floats(kRows * kDim * 2, 2);
  const std::vector<int32_t> positions = {6, 5, 4, 3, 2, 1, 0};
  const RopeTable rope_table{table.data(), table.data(), kRows, kDim};
  auto all = before;
  Tensor q(all.data(), DType::f32, {kRows, 1, kDim});
  Tensor k(all.data() + kRows * kDim, DType::f32, {kRows, 1, kDim});
  rope(TestContext(GetParam(), 3), q, k, positions, rope_table);
  auto alone = before;
  Tensor q1(alone.data() + 4 * kDim, DType::f32, {1, 1, kDim});
  Tensor k1(alone.data() + (kRows + 4) * kDim, DType::f32, {1, 1, kDim});
  rope(TestContext(GetParam()), q1, k1, std::span(positions).subspan(4, 1), rope_table);
  EXPECT_EQ(std::memcmp(q1.data, q.row<float>(4), kDim * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(k1.data, k.row<float>(4), kDim * sizeof(float)), 0);
}

}  // namespace
}  // namespace millrace
