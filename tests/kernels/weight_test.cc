#include "kernels/core/weight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/core/dtype.h"
#include "tests/kernels/packed_weight.h"

namespace millrace {
namespace {

constexpr int64_t kRows[] = {1, 63, 64, 65, 130};

// Packs a row-major matrix; returns it as the format stores it.
std::vector<float> round_trip(const PackedWeight& w, const std::vector<float>& source) {
  const LinearWeight& v = w.view();
  for (int64_t p = 0; p < v.num_panels(); ++p)
    pack_panel(v, p, source.data() + p * kPanel * v.k, std::min(kPanel, v.n - p * kPanel));
  std::vector<float> out(source.size());
  for (int64_t row = 0; row < v.n; ++row) unpack_row(v, row, out.data() + row * v.k);
  return out;
}

TEST(WeightTest, F32RoundTripIsExact) {
  for (const int64_t n : kRows)
    for (const int64_t k : {1, 2, 3, 31, 32, 33}) {
      const std::vector<float> source = random_floats(static_cast<size_t>(n * k), 1);
      EXPECT_EQ(round_trip(PackedWeight(WeightFormat::f32, n, k, false), source), source);
    }
}

TEST(WeightTest, Bf16RoundTripRoundsOnce) {
  for (const int64_t n : kRows)
    for (const int64_t k : {1, 2, 3, 31, 32, 33}) {
      std::vector<float> source = random_floats(static_cast<size_t>(n * k), 2);
      const std::vector<float> out =
          round_trip(PackedWeight(WeightFormat::bf16, n, k, false), source);
      for (float& x : source) x = to_float(to_bf16(x));
      EXPECT_EQ(out, source);
    }
}

TEST(WeightTest, Int8QuantisationErrsByHalfAStep) {
  for (const int64_t n : kRows)
    for (const int64_t k : {1, 32, 33, 96}) {
      const std::vector<float> source = random_floats(static_cast<size_t>(n * k), 3);
      const std::vector<float> out =
          round_trip(PackedWeight(WeightFormat::int8_g32, n, k, false), source);
      for (int64_t row = 0; row < n; ++row)
        for (int64_t g = 0; g < k; g += kGroup) {
          const auto begin = source.begin() + row * k + g;
          float largest = 0;
          for (int64_t i = 0; i < std::min(kGroup, k - g); ++i)
            largest = std::max(largest, std::fabs(begin[i]));
          // Half a step, and the rounding of the scale to f16 on 127 steps.
          const float bound = largest / 127 * (0.5f + 127 * 0x1p-11f);
          for (int64_t i = 0; i < std::min(kGroup, k - g); ++i)
            ASSERT_NEAR(out[static_cast<size_t>(row * k + g + i)], begin[i], bound);
        }
    }
}

TEST(WeightTest, Int4QuantisationErrsByHalfAStep) {
  for (const int64_t n : kRows)
    for (const int64_t k : {1, 32, 40, 96}) {
      const std::vector<float> source = random_floats(static_cast<size_t>(n * k), 4);
      const std::vector<float> out =
          round_trip(PackedWeight(WeightFormat::int4_g32, n, k, true), source);
      for (int64_t row = 0; row < n; ++row)
        for (int64_t g = 0; g < k; g += kGroup) {
          const auto begin = source.begin() + row * k + g;
          const auto [low, high] = std::minmax_element(begin, begin + std::min(kGroup, k - g));
          const float bound = (*high - *low) / 15 * (0.5f + 15 * 0x1p-11f) +
                              std::max(std::fabs(*low), std::fabs(*high)) * 0x1p-10f;
          for (int64_t i = 0; i < std::min(kGroup, k - g); ++i)
            ASSERT_NEAR(out[static_cast<size_t>(row * k + g + i)], begin[i], bound);
        }
    }
}

TEST(WeightTest, SymmetricInt4QuantisationErrsByHalfAStep) {
  constexpr int64_t kN = 65, kK = 96;
  const std::vector<float> source = random_floats(kN * kK, 14);
  const std::vector<float> out =
      round_trip(PackedWeight(WeightFormat::int4_g32, kN, kK, false), source);
  for (size_t g = 0; g < source.size(); g += kGroup) {
    const auto begin = source.begin() + static_cast<std::ptrdiff_t>(g);
    const auto [low, high] = std::minmax_element(begin, begin + kGroup);
    const float step = std::max(std::fabs(*low), std::fabs(*high)) / 8;
    // The value of largest magnitude is -8 steps; one as large of the other sign must do with 7.
    for (size_t i = g; i < g + kGroup; ++i) ASSERT_NEAR(out[i], source[i], step * 1.01f);
  }
}

TEST(WeightTest, QuantisingZerosAndHugeValuesStaysFinite) {
  for (const float value : {0.0f, 1e-30f, 1e30f, -1e30f})
    for (const WeightFormat format : {WeightFormat::int8_g32, WeightFormat::int4_g32}) {
      const std::vector<float> source(64, value);
      const PackedWeight w(format, 2, 32, format == WeightFormat::int4_g32);
      for (const float x : round_trip(w, source)) EXPECT_TRUE(std::isfinite(x)) << value;
    }
}

TEST(WeightTest, Int8CodesAndScalesAreStoredAsGiven) {
  constexpr int64_t kN = 65, kK = 64;
  std::vector<int8_t> q(kN * kK);
  for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<int8_t>(i * 37);
  std::vector<float> scales(kN * 2), minima(kN * 2);
  for (size_t i = 0; i < scales.size(); ++i) {
    scales[i] = static_cast<float>(i + 1) / 64;
    minima[i] = static_cast<float>(i) / -8;
  }
  for (const bool with_minima : {false, true}) {
    const PackedWeight w(WeightFormat::int8_g32, kN, kK, with_minima);
    for (int64_t p = 0; p < 2; ++p)
      pack_panel_int8(w.view(), p, q.data() + p * 64 * kK, scales.data() + p * 128,
                      with_minima ? minima.data() + p * 128 : nullptr, p == 0 ? 64 : 1);
    std::vector<float> row(kK);
    for (int64_t r = 0; r < kN; ++r) {
      unpack_row(w.view(), r, row.data());
      for (int64_t k = 0; k < kK; ++k) {
        const auto g = static_cast<size_t>(r * 2 + k / 32);
        const float expected = scales[g] * q[static_cast<size_t>(r * kK + k)];
        ASSERT_EQ(row[static_cast<size_t>(k)], with_minima ? expected + minima[g] : expected);
      }
    }
  }
}

TEST(WeightTest, Int4CodesAreStoredAsGiven) {
  constexpr int64_t kN = 66, kK = 96;
  std::vector<uint8_t> codes(kN * kK);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 7 % 16);
  const std::vector<float> scales(kN * 3, 0.25f), minima(kN * 3, -1.5f);
  for (const bool with_minima : {false, true}) {
    const PackedWeight w(WeightFormat::int4_g32, kN, kK, with_minima);
    const float* minimum = with_minima ? minima.data() : nullptr;
    pack_panel_int4(w.view(), 0, codes.data(), scales.data(), minimum, 64);
    pack_panel_int4(w.view(), 1, codes.data() + 64 * kK, scales.data(), minimum, 2);
    std::vector<float> row(kK);
    for (int64_t r = 0; r < kN; ++r) {
      unpack_row(w.view(), r, row.data());
      for (int64_t k = 0; k < kK; ++k) {
        const int code = codes[static_cast<size_t>(r * kK + k)];
        ASSERT_EQ(row[static_cast<size_t>(k)], with_minima ? 0.25f * static_cast<float>(code) - 1.5f
                                                           : 0.25f * static_cast<float>(code - 8));
      }
    }
  }
}

// The layout that weight.h promises, element by element.
TEST(WeightTest, LayoutIsAsDocumented) {
  const PackedWeight w = PackedWeight::random(TestFormat::int4_minima, 3, 64, 5);
  std::vector<float> row(64);
  unpack_row(w.view(), 2, row.data());
  for (int64_t k = 0; k < 64; ++k) {
    const uint8_t byte = w.view().panels[(k / 8 * 64 + 2) * 4 + k % 4];
    const int code = k % 8 < 4 ? byte & 15 : byte >> 4;
    const int64_t at = k / 32 * 64 + 2;
    EXPECT_EQ(row[static_cast<size_t>(k)],
              f16_to_float(w.view().scales[at]) * static_cast<float>(code) +
                  f16_to_float(w.view().minima[at]));
  }
}

TEST(WeightTest, PaddingColumnsAreZero) {
  for (const TestFormat format : kTestFormats) {
    PackedWeight w = PackedWeight::random(format, 1, 32, 6);
    LinearWeight padded = w.view();
    padded.n = 64;  // look at what lies behind the only real column
    std::vector<float> row(32, 1.0f);
    for (const int64_t r : {1, 63}) {
      unpack_row(padded, r, row.data());
      for (const float x : row) EXPECT_EQ(x, 0.0f) << test_format_name(format);
    }
  }
}

}  // namespace
}  // namespace millrace
