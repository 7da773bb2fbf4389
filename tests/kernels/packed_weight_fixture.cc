#include <cstdlib>
#include <cstring>
#include <random>

#include "tests/kernels/packed_weight.h"

namespace millrace {
namespace {

WeightFormat weight_format(TestFormat format) {
  switch (format) {
    case TestFormat::f32: return WeightFormat::f32;
    case TestFormat::bf16: return WeightFormat::bf16;
    case TestFormat::int8_channel: return WeightFormat::int8_channel;
    case TestFormat::int8:
    case TestFormat::int8_minima: return WeightFormat::int8_g32;
    case TestFormat::int4:
    case TestFormat::int4_minima: return WeightFormat::int4_g32;
  }
  return WeightFormat::f32;
}

}  // namespace

std::string test_format_name(TestFormat format) {
  switch (format) {
    case TestFormat::f32: return "f32";
    case TestFormat::bf16: return "bf16";
    case TestFormat::int8_channel: return "int8_channel";
    case TestFormat::int8: return "int8";
    case TestFormat::int8_minima: return "int8_minima";
    case TestFormat::int4: return "int4";
    case TestFormat::int4_minima: return "int4_minima";
  }
  return "";
}

void PackedWeight::FreeDelete::operator()(void* p) const { std::free(p); }

std::unique_ptr<void, PackedWeight::FreeDelete> PackedWeight::allocate(int64_t bytes) {
  if (bytes == 0) return nullptr;
  const auto rounded = static_cast<size_t>((bytes + 63) / 64 * 64);
  void* p = std::aligned_alloc(64, rounded);
  std::memset(p, 0xff, rounded);
  return std::unique_ptr<void, FreeDelete>(p);
}

PackedWeight::PackedWeight(WeightFormat format, int64_t n, int64_t k, bool minima) {
  view_.format = format;
  view_.n = n;
  view_.k = k;
  const int64_t panels = view_.num_panels();
  panels_ = allocate(panels * panel_bytes(format, k));
  scales_ = allocate(panels * panel_scale_bytes(format, k));
  if (minima) minima_ = allocate(panels * panel_scale_bytes(format, k));
  view_.panels = static_cast<uint8_t*>(panels_.get());
  view_.scales = static_cast<uint16_t*>(scales_.get());
  view_.minima = static_cast<uint16_t*>(minima_.get());
}

void PackedWeight::set_bias(std::vector<float> bias) {
  bias_ = std::move(bias);
  view_.bias = bias_.data();
}

PackedWeight PackedWeight::random(TestFormat format, int64_t n, int64_t k, uint32_t seed,
                                  bool bias) {
  const bool minima = format == TestFormat::int8_minima || format == TestFormat::int4_minima;
  const bool int4 = weight_format(format) == WeightFormat::int4_g32;
  PackedWeight w(weight_format(format), n, k, minima);
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int> byte(0, 255);
  for (int64_t p = 0; p < w.view_.num_panels(); ++p) {
    const int64_t rows = std::min(kPanel, n - p * kPanel);
    const auto part_seed = static_cast<uint32_t>(generator());
    if (!has_groups(weight_format(format))) {
      pack_panel(w.view_, p, random_floats(static_cast<size_t>(rows * k), part_seed).data(), rows);
      continue;
    }
    const auto groups = static_cast<size_t>(rows * (k / kGroup));
    const std::vector<float> scales = random_floats(groups, part_seed, 0.01f);
    const std::vector<float> minimum = random_floats(groups, part_seed + 1, 0.5f);
    std::vector<uint8_t> codes(static_cast<size_t>(rows * k));
    for (uint8_t& code : codes) code = static_cast<uint8_t>(byte(generator) & (int4 ? 15 : 255));
    if (int4)
      pack_panel_int4(w.view_, p, codes.data(), scales.data(), minima ? minimum.data() : nullptr,
                      rows);
    else
      pack_panel_int8(w.view_, p, reinterpret_cast<const int8_t*>(codes.data()), scales.data(),
                      minima ? minimum.data() : nullptr, rows);
  }
  if (bias) w.set_bias(random_floats(static_cast<size_t>(n), seed + 7));
  return w;
}

}  // namespace millrace
