#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/core/dtype.h"
#include "kernels/ops.h"
#include "tests/kernels/packed_weight.h"

namespace millrace {
namespace {

struct Case {
  CpuLevel level;
  TestFormat format;
};

bool is_integer(TestFormat format) {
  return format != TestFormat::f32 && format != TestFormat::bf16;
}

std::vector<Case> cases(bool integer_only) {
  std::vector<Case> all;
  for (const CpuLevel level : {CpuLevel::reference, CpuLevel::avx2, CpuLevel::avx512})
    for (const TestFormat format : kTestFormats)
      if (!integer_only || is_integer(format)) all.push_back({level, format});
  return all;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return std::string(cpu_level_name(info.param.level)) + "_" + test_format_name(info.param.format);
}

class LinearTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { SKIP_WITHOUT_LEVEL(GetParam().level); }
  static bool integer() { return is_integer(GetParam().format); }
  static std::vector<int64_t> inner_sizes() {
    if (integer() && GetParam().format != TestFormat::int8_channel) return {32, 64, 96, 288};
    return {1, 2, 3, 31, 32, 33, 65, 130};
  }
};

class IntegerLinearTest : public LinearTest {};

// What the weight's format multiplies x by, in double: x itself, x rounded to bf16, or x quantised
// to int8 by groups. Half way cases may go either way, which the tolerance allows for.
std::vector<double> converted(TestFormat format, const float* x, int64_t k) {
  std::vector<double> out(x, x + k);
  if (format == TestFormat::bf16)
    for (double& v : out) v = to_float(to_bf16(static_cast<float>(v)));
  if (!is_integer(format)) return out;
  const int64_t group = format == TestFormat::int8_channel ? k : kGroup;
  for (int64_t g = 0; g < k; g += group) {
    double largest = 0;
    for (int64_t i = g; i < g + group; ++i) largest = std::max(largest, std::fabs(out[i]));
    const double scale = largest / 127;
    for (int64_t i = g; i < g + group; ++i)
      out[i] = scale == 0 ? 0 : std::nearbyint(out[i] / scale) * scale;
  }
  return out;
}

struct Matrix {
  int64_t rows, cols, stride;
  std::vector<float> data;
  Matrix(int64_t r, int64_t c, int64_t s, float fill = NAN)
      : rows(r), cols(c), stride(s), data(static_cast<size_t>(r * s), fill) {}
  Tensor view() {
    Tensor t(data.data(), DType::f32, {rows, cols});
    t.strides[0] = stride;
    return t;
  }
  float* row(int64_t i) { return data.data() + i * stride; }
};

Matrix random_matrix(int64_t rows, int64_t cols, int64_t stride, uint32_t seed) {
  Matrix m(rows, cols, stride);
  const std::vector<float> values = random_floats(static_cast<size_t>(rows * cols), seed);
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(values.data() + r * cols, cols, m.row(r));  // the gap stays NaN
  return m;
}

void expect_matches_double(const Case& c, const LinearWeight& w, Matrix& x, Matrix& out) {
  std::vector<float> weight(static_cast<size_t>(w.k));
  double worst = 0;
  std::vector<std::vector<double>> inputs;
  for (int64_t r = 0; r < x.rows; ++r) inputs.push_back(converted(c.format, x.row(r), w.k));
  for (int64_t n = 0; n < w.n; ++n) {
    unpack_row(w, n, weight.data());
    for (int64_t r = 0; r < x.rows; ++r) {
      double sum = w.bias ? w.bias[n] : 0.0, magnitude = std::fabs(sum);
      for (int64_t k = 0; k < w.k; ++k) {
        const double term = inputs[r][k] * weight[k];
        sum += term;
        magnitude += std::fabs(term);
      }
      // Every addition rounds by at most half a unit of the running sum.
      const double tolerance = (static_cast<double>(w.k) + 8) * 0x1p-24 * magnitude + 1e-30;
      worst = std::max(worst, std::fabs(out.row(r)[n] - sum) / tolerance);
    }
  }
  EXPECT_LE(worst, 1.0) << "rows " << x.rows << " n " << w.n << " k " << w.k
                        << ": fraction of the tolerance used";
}

TEST_P(LinearTest, MatchesDoublePrecision) {
  const TestContext context(GetParam().level, 2);
  for (const int64_t n : {1, 63, 64, 65, 130})
    for (const int64_t k : inner_sizes())
      for (const int64_t rows : {1, 2, 3, 7, 13}) {
        const bool bias = (n + rows) % 2 == 0;
        const PackedWeight w = PackedWeight::random(GetParam().format, n, k, 11, bias);
        Matrix x = random_matrix(rows, k, k + 5, 12), out(rows, n, n + 3);
        linear(context, out.view(), x.view(), w.view());
        expect_matches_double(GetParam(), w.view(), x, out);
        for (int64_t r = 0; r < rows; ++r)  // nothing is written beyond a row
          for (int64_t i = n; i < n + 3; ++i) ASSERT_TRUE(std::isnan(out.row(r)[i]));
      }
}

// Long enough for the blocks of k that larger batches are cut into.
int64_t long_k(TestFormat format) {
  switch (format) {
    case TestFormat::f32: return 3 * 1024 + 7;
    case TestFormat::bf16: return 5 * 1024 + 3;
    case TestFormat::int8_channel: return 9 * 1024 + 5;
    case TestFormat::int8:
    case TestFormat::int8_minima: return 8 * 1024 + 32;
    case TestFormat::int4:
    case TestFormat::int4_minima: return 14 * 1024 + 32;
  }
  return 0;
}

TEST_P(LinearTest, LongRowsMatchDoublePrecision) {
  const TestContext context(GetParam().level, 2);
  const int64_t n = 65, k = long_k(GetParam().format);
  const PackedWeight w = PackedWeight::random(GetParam().format, n, k, 21, true);
  Matrix x = random_matrix(8, k, k, 22), out(8, n, n);
  linear(context, out.view(), x.view(), w.view());
  expect_matches_double(GetParam(), w.view(), x, out);
}

TEST_P(LinearTest, ARowsBitsDependOnThatRowAlone) {
  const TestContext one(GetParam().level, 1);
  const bool slow = GetParam().level == CpuLevel::reference;
  std::vector<int64_t> sizes = {integer() ? 96 : 99};
  if (!slow) sizes.push_back(long_k(GetParam().format));
  for (const int64_t k : sizes) {
    const int64_t n = k < 100 ? 161 : 97;
    const PackedWeight w = PackedWeight::random(GetParam().format, n, k, 31, true);
    const int64_t most = slow ? 33 : 257;
    Matrix x = random_matrix(most, k, k, 32), alone(most, n, n);
    for (int64_t r = 0; r < most; ++r)
      linear(one, alone.view().rows(r, 1), x.view().rows(r, 1), w.view());
    for (const int threads : {1, 2, 3, 4}) {
      const TestContext context(GetParam().level, threads);
      for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 13, 31, 32, 33, 64, 257}) {
        if (rows > most || (threads > 1 && rows > 8 && rows != 33 && rows != 257)) continue;
        // Other neighbours each time: the rows end at `most`, not begin at 0.
        const int64_t first = most - rows;
        Matrix out(rows, n, n);
        linear(context, out.view(), x.view().rows(first, rows), w.view());
        ASSERT_EQ(std::memcmp(out.data.data(), alone.row(first), out.data.size() * 4), 0)
            << "rows " << rows << " threads " << threads << " k " << k;
      }
    }
  }
}

TEST_P(IntegerLinearTest, ExtremeCodesDoNotSaturate) {
  const TestContext context(GetParam().level, 1);
  constexpr int64_t kK = 64;
  const bool int4 =
      GetParam().format == TestFormat::int4 || GetParam().format == TestFormat::int4_minima;
  const bool minima =
      GetParam().format == TestFormat::int8_minima || GetParam().format == TestFormat::int4_minima;
  for (const int code : {-128, 127}) {
    const PackedWeight w(int4 ? WeightFormat::int4_g32 : WeightFormat::int8_g32, 64, kK, minima);
    const std::vector<float> scales(128, 1.0f), zeros(128, 0.0f);
    const std::vector<uint8_t> codes(64 * kK, static_cast<uint8_t>(int4 ? 15 : code));
    if (int4)
      pack_panel_int4(w.view(), 0, codes.data(), scales.data(), minima ? zeros.data() : nullptr,
                      64);
    else
      pack_panel_int8(w.view(), 0, reinterpret_cast<const int8_t*>(codes.data()), scales.data(),
                      minima ? zeros.data() : nullptr, 64);
    for (const float value : {127.0f, -127.0f}) {  // scale 1: the codes are the values
      Matrix x(3, kK, kK, value), out(3, 64, 64);
      linear(context, out.view(), x.view(), w.view());
      const int weight = !int4 ? code : minima ? 15 : 15 - 8;
      const float expected = value * static_cast<float>(weight) * kK;
      for (const float y : out.data) ASSERT_EQ(y, expected);
    }
  }
}

TEST_P(LinearTest, ZeroAndTinyRowsGiveTheBias) {
  const TestContext context(GetParam().level, 1);
  const PackedWeight w = PackedWeight::random(GetParam().format, 70, 64, 41, true);
  for (const float value : {0.0f, -0.0f, 1e-38f, 1e-44f}) {
    Matrix x(2, 64, 64, value), out(2, 70, 70);
    linear(context, out.view(), x.view(), w.view());
    for (int64_t n = 0; n < 70; ++n) ASSERT_FLOAT_EQ(out.row(1)[n], w.view().bias[n]) << value;
  }
}

TEST_P(LinearTest, NotANumberReachesTheOutputOfItsRowOnly) {
  const TestContext context(GetParam().level, 1);
  const PackedWeight w = PackedWeight::random(GetParam().format, 66, 96, 51);
  Matrix x = random_matrix(5, 96, 96, 52), out(5, 66, 66);
  x.row(2)[40] = NAN;
  linear(context, out.view(), x.view(), w.view());
  for (int64_t r = 0; r < 5; ++r)
    for (int64_t n = 0; n < 66; ++n) ASSERT_EQ(std::isnan(out.row(r)[n]), r == 2) << r << " " << n;
}

TEST_P(LinearTest, ADryRunTellsTheScratchAndTouchesNothing) {
  const PackedWeight w = PackedWeight::random(GetParam().format, 70, 96, 61);
  Arena measuring;
  Ctx dry;
  dry.cpu_level = GetParam().level;
  dry.arena = &measuring;
  linear(dry, Tensor(nullptr, DType::f32, {9, 70}), Tensor(nullptr, DType::f32, {9, 96}), w.view());
  EXPECT_EQ(measuring.used(), 0u);
  EXPECT_EQ(measuring.high_water() == 0, GetParam().format == TestFormat::f32);

  // That much is enough for the real call.
  const Pool pool(1);
  std::vector<char> memory(measuring.high_water() + 64);
  const auto aligned = (reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64;
  Arena arena(reinterpret_cast<void*>(aligned), measuring.high_water());
  Ctx real = dry;
  real.pool = &pool;
  real.arena = &arena;
  Matrix x = random_matrix(9, 96, 96, 62), out(9, 70, 70);
  linear(real, out.view(), x.view(), w.view());
  expect_matches_double(GetParam(), w.view(), x, out);
}

INSTANTIATE_TEST_SUITE_P(Levels, LinearTest, testing::ValuesIn(cases(false)), case_name);
INSTANTIATE_TEST_SUITE_P(Levels, IntegerLinearTest, testing::ValuesIn(cases(true)), case_name);

TEST(LinearDeathTest, AWrongShapeAbortsWithItsName) {
  const TestContext context(CpuLevel::reference, 1);
  const PackedWeight w = PackedWeight::random(TestFormat::f32, 4, 8, 1);
  Matrix x(2, 7, 7, 0.0f), out(2, 4, 4);
  EXPECT_DEATH(linear(context, out.view(), x.view(), w.view()), "linear.x: k is 7, expected 8");
}

}  // namespace
}  // namespace millrace
