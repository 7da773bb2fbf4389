#include "engine/load/dequant.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/core/dtype.h"
#include "tests/engine/load/dequant_fixture.h"

namespace millrace {
namespace {

TEST(Dequant, EveryTypeEqualsTheGgufPackage) {
  const std::vector<DequantCase> cases = read_dequant_cases();
  EXPECT_EQ(cases.size(), 12u);
  for (const DequantCase& c : cases) {
    const auto n = static_cast<int64_t>(c.floats.size());
    std::vector<float> out(c.floats.size(), NAN);
    decode_floats(c.type, c.blocks.data(), n, out.data());
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], c.floats[i]) << c.name << " " << i;
  }
}

TEST(Dequant, CodesScalesAndMinimaGiveTheSameFloats) {
  for (const DequantCase& c : read_dequant_cases()) {
    const auto n = static_cast<int64_t>(c.floats.size());
    const int64_t group = stored_group_size(c.type);
    std::vector<int8_t> q(c.floats.size());
    std::vector<float> scales(static_cast<size_t>(n / group)), minima(scales.size(), 0.0f);
    decode_codes(c.type, c.blocks.data(), n, q.data(), scales.data(), minima.data());
    for (size_t i = 0; i < q.size(); ++i) {
      const size_t g = i / static_cast<size_t>(group);
      ASSERT_EQ(scales[g] * static_cast<float>(q[i]) + minima[g], c.floats[i])
          << c.name << " " << i;
      if (fits_int4(c.type)) {
        ASSERT_GE(q[i], has_minimum(c.type) ? 0 : -8) << c.name;
        ASSERT_LE(q[i], has_minimum(c.type) ? 15 : 7) << c.name;
      }
    }
  }
}

TEST(Dequant, HalfAndBrainFloatsOfEveryExponent) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> out(halves.size());
  const auto* bytes = reinterpret_cast<const uint8_t*>(halves.data());
  decode_floats(StoredType::f16, bytes, 65536, out.data());
  EXPECT_EQ(out[0x3c00], 1.0f);
  EXPECT_EQ(out[0xc000], -2.0f);
  EXPECT_EQ(out[0x0001], 0x1p-24f);
  EXPECT_TRUE(std::isinf(out[0x7c00]));
  decode_floats(StoredType::bf16, bytes, 65536, out.data());
  EXPECT_EQ(out[0x3f80], 1.0f);
  EXPECT_EQ(out[0xc000], -2.0f);
}

TEST(Dequant, RequantisedGroupsStayWithinHalfAStep) {
  std::vector<float> w(96);
  for (size_t i = 0; i < 64; ++i) w[i] = std::sin(static_cast<float>(i) * 0.7f) * 0.03f;
  std::vector<int8_t> q(96);
  std::vector<float> scales(3);
  requantise_int8(w.data(), 96, q.data(), scales.data());
  for (size_t i = 0; i < 96; ++i) {
    const float scale = scales[i / 32];
    EXPECT_EQ(scale, f16_to_float(float_to_f16(scale)));
    EXPECT_NEAR(scale * static_cast<float>(q[i]), w[i], 0.502f * scale);
  }
  EXPECT_EQ(scales[2], 0.0f);
}

}  // namespace
}  // namespace millrace
