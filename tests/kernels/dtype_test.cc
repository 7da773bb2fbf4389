#include "kernels/core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace millrace {
namespace {

// What the 16 bits mean, from the definition of binary16.
double f16_value(uint16_t bits) {
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent == 31) return fraction ? NAN : sign * INFINITY;
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(DTypeTest, EveryF16ConvertsExactlyAndBack) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = f16_to_float(bits);
    const double expected = f16_value(bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << i;
      EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(value)))) << i;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), expected) << i;
    ASSERT_EQ(std::signbit(value), std::signbit(expected)) << i;
    ASSERT_EQ(float_to_f16(value), bits) << i;
  }
}

// Between two neighbours: below the middle goes down, above it goes up, the middle goes to even.
TEST(DTypeTest, FloatToF16RoundsToNearestEven) {
  for (uint32_t i = 0; i < 0x7c00; ++i) {
    const auto low = static_cast<uint16_t>(i), high = static_cast<uint16_t>(i + 1);
    // The neighbour of the largest finite value is where infinity begins: 2^16.
    const double above = high == 0x7c00 ? 65536.0 : f16_value(high);
    const auto middle = static_cast<float>((f16_value(low) + above) / 2);
    ASSERT_EQ(float_to_f16(std::nextafter(middle, 0.0f)), low) << i;
    ASSERT_EQ(float_to_f16(std::nextafter(middle, INFINITY)), high) << i;
    ASSERT_EQ(float_to_f16(middle), i % 2 == 0 ? low : high) << i;
    ASSERT_EQ(float_to_f16(-middle), 0x8000u | (i % 2 == 0 ? low : high)) << i;
  }
}

TEST(DTypeTest, F16ExtremesOverflowAndUnderflow) {
  EXPECT_EQ(float_to_f16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(float_to_f16(-INFINITY), 0xfc00);
  EXPECT_EQ(float_to_f16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(float_to_f16(-0.0f), 0x8000);
}

TEST(DTypeTest, EveryBf16SurvivesARoundTrip) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const bf16 x{static_cast<uint16_t>(i)};
    const float value = to_float(x);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(to_float(to_bf16(value)))) << i;
    else
      ASSERT_EQ(to_bf16(value).bits, i);
  }
}

TEST(DTypeTest, FloatToBf16RoundsToNearestEven) {
  for (uint32_t i = 0; i < 0x7f80; ++i) {
    const float middle = std::bit_cast<float>((i << 16) | 0x8000u);
    ASSERT_EQ(to_bf16(std::bit_cast<float>((i << 16) | 0x7fffu)).bits, i);
    ASSERT_EQ(to_bf16(std::bit_cast<float>((i << 16) | 0x8001u)).bits, i + 1);
    ASSERT_EQ(to_bf16(middle).bits, i + i % 2);
  }
}

TEST(DTypeTest, ANanWithLowBitsOnlyStaysANan) {
  const float nan = std::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(to_float(to_bf16(nan))));
  EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(nan))));
}

}  // namespace
}  // namespace millrace
