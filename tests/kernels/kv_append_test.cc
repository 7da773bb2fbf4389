#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "kernels/ops.h"
#include "tests/kernels/context_fixture.h"

namespace millrace {
namespace {

using LevelAndType = std::tuple<CpuLevel, DType>;

class KvAppendTest : public testing::TestWithParam<LevelAndType> {
 protected:
  void SetUp() override { SKIP_WITHOUT_LEVEL(std::get<0>(GetParam())); }
  DType type() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Levels, KvAppendTest,
                         testing::Combine(testing::Values(CpuLevel::reference, CpuLevel::avx2,
                                                          CpuLevel::avx512),
                                          testing::Values(DType::f32, DType::bf16)),
                         [](const auto& info) {
                           return std::string(cpu_level_name(std::get<0>(info.param))) + "_" +
                                  dtype_name(std::get<1>(info.param));
                         });

// The bytes that one element must have.
std::string stored(DType type, float x) {
  std::string bytes(dtype_bytes(type), 0);
  const bf16 rounded = to_bf16(x);
  std::memcpy(bytes.data(), type == DType::bf16 ? static_cast<const void*>(&rounded) : &x,
              bytes.size());
  return bytes;
}

TEST_P(KvAppendTest, PutsEveryElementWhereTheLayoutSaysAndTouchesNothingElse) {
  TestContext c(std::get<0>(GetParam()), 2);
  for (const int dim : {16, 64, 80, 256}) {
    for (const int block_size : {16, 32}) {
      constexpr int kHeads = 3, kBlocks = 4;
      const int64_t layer_bytes = kv_layer_block_bytes(type(), block_size, kHeads, dim);
      const int64_t stride = layer_bytes + 128;  // another layer follows
      std::vector<char> cache(static_cast<size_t>(kBlocks * stride), 0x5a);
      auto expected = cache;
      const KvLayer kv{cache.data(), stride, type(), block_size, kHeads, dim, 0};
      const std::vector<int32_t> slots = {
          0, block_size - 1, 3 * block_size + 5, 2 * block_size, block_size, 15};
      const int64_t rows = static_cast<int64_t>(slots.size()) - (block_size == 16);
      const std::span<const int32_t> used(slots.data(), static_cast<size_t>(rows));
      auto k = random_floats(static_cast<size_t>(rows * kHeads * dim), 1);
      auto v = random_floats(k.size(), 2);
      v[0] = std::numeric_limits<float>::infinity();
      v[1] = -std::numeric_limits<float>::max();  // rounds to infinity in bf16
      v[2] = 1.0f + 0x1p-8f;                      // a tie: to even, down
      v[3] = 1.0f + 0x3p-8f;                      // a tie: to even, up
      v[4] = -0.0f;
      kv_append(c, kv, Tensor(k.data(), DType::f32, {rows, kHeads, dim}),
                Tensor(v.data(), DType::f32, {rows, kHeads, dim}), used);

      const int pair = type() == DType::bf16 ? 2 : 1;
      for (int64_t t = 0; t < rows; ++t) {
        const int64_t offset = slots[t] % block_size;
        char* block = expected.data() + slots[t] / block_size * stride;
        for (int64_t h = 0; h < kHeads; ++h) {
          for (int64_t d = 0; d < dim; ++d) {
            const size_t from = static_cast<size_t>((t * kHeads + h) * dim + d);
            const int64_t tile = (h * (block_size / 16) + offset / 16) * dim * 16;
            const int64_t key = tile + (d / pair * 16 + offset % 16) * pair + d % pair;
            const int64_t value =
                (kHeads + h) * block_size * dim + (offset / pair * dim + d) * pair + offset % pair;
            const int64_t bytes = static_cast<int64_t>(dtype_bytes(type()));
            std::memcpy(block + key * bytes, stored(type(), k[from]).data(), bytes);
            std::memcpy(block + value * bytes, stored(type(), v[from]).data(), bytes);
          }
        }
      }
      EXPECT_TRUE(cache == expected) << "D " << dim << " block " << block_size;
    }
  }
}

TEST_P(KvAppendTest, ANanStaysANan) {
  TestContext c(std::get<0>(GetParam()));
  constexpr int kDim = 16;
  std::vector<char> cache(static_cast<size_t>(kv_layer_block_bytes(type(), 16, 1, kDim)));
  std::vector<float> x(kDim, std::numeric_limits<float>::quiet_NaN());
  x[3] = std::bit_cast<float>(0x7f800001u);  // its payload would be lost by rounding
  const Tensor row(x.data(), DType::f32, {1, 1, kDim});
  kv_append(c, {cache.data(), static_cast<int64_t>(cache.size()), type(), 16, 1, kDim, 0}, row, row,
            std::vector<int32_t>{0});
  const char* value = cache.data() + cache.size() / 2;
  for (int d = 0; d < kDim; ++d) {
    if (type() == DType::bf16) {
      bf16 stored_value;
      std::memcpy(&stored_value, value + d * 4, 2);
      EXPECT_TRUE(std::isnan(to_float(stored_value))) << d;
    } else {
      float stored_value;
      std::memcpy(&stored_value, value + d * 4, 4);
      EXPECT_TRUE(std::isnan(stored_value)) << d;
    }
  }
}

}  // namespace
}  // namespace millrace
