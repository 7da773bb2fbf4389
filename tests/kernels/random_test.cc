#include "kernels/core/random.h"

#include <gtest/gtest.h>

#include <vector>

namespace millrace {
namespace {

using Words = std::array<uint32_t, 4>;

// Known answers of the Random123 distribution (kat_vectors, philox4x32 with 10 rounds).
TEST(RandomTest, PhiloxKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomTest, UniformFillsTheUnitInterval) {
  constexpr int kDraws = 20000, kBins = 20;
  std::vector<int> bins(kBins);
  for (int i = 0; i < kDraws; ++i) {
    const double u = uniform_at(42, static_cast<uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++bins[static_cast<size_t>(u * kBins)];
  }
  double chi2 = 0;
  constexpr double kExpected = double{kDraws} / kBins;
  for (const int n : bins) chi2 += (n - kExpected) * (n - kExpected) / kExpected;
  EXPECT_LT(chi2, 43.8);  // 99.9 % quantile with 19 degrees of freedom
}

TEST(RandomTest, EveryBitOfSeedAndPositionMatters) {
  const double base = uniform_at(0, 0);
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_NE(uniform_at(uint64_t{1} << bit, 0), base) << bit;
    EXPECT_NE(uniform_at(0, uint64_t{1} << bit), base) << bit;
  }
}

}  // namespace
}  // namespace millrace
