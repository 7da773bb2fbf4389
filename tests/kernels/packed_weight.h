// A packed weight that owns its memory, with random or given contents.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/core/weight.h"
#include "tests/kernels/context_fixture.h"

namespace millrace {

enum class TestFormat { f32, bf16, int8_channel, int8, int8_minima, int4, int4_minima };
inline constexpr TestFormat kTestFormats[] = {
    TestFormat::f32,         TestFormat::bf16, TestFormat::int8_channel, TestFormat::int8,
    TestFormat::int8_minima, TestFormat::int4, TestFormat::int4_minima};
std::string test_format_name(TestFormat format);

class PackedWeight {
 public:
  // Random weights: floats, or random codes and scales for the formats with groups.
  static PackedWeight random(TestFormat format, int64_t n, int64_t k, uint32_t seed,
                             bool bias = false);
  // Room for a weight, filled with 0xff.
  PackedWeight(WeightFormat format, int64_t n, int64_t k, bool minima);

  const LinearWeight& view() const { return view_; }
  void set_bias(std::vector<float> bias);

 private:
  struct FreeDelete {
    void operator()(void* p) const;
  };
  static std::unique_ptr<void, FreeDelete> allocate(int64_t bytes);

  std::unique_ptr<void, FreeDelete> panels_, scales_, minima_;
  std::vector<float> bias_;
  LinearWeight view_;
};

}  // namespace millrace
