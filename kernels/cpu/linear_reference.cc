// The definition: one element at a time, k ascending, one rounding per operation.
#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/core/dtype.h"
#include "kernels/cpu/linear.h"

namespace millrace::cpu {
namespace {

void convert_bf16(const LinearTask& t, int64_t row) {
  auto* out = reinterpret_cast<bf16*>(t.values + row * t.value_stride);
  for (int64_t k = 0; k < t.k; ++k) out[k] = to_bf16(t.x[row * t.x_stride + k]);
  if (t.k % 2 != 0) out[t.k] = {0};
}

void convert_group(const LinearTask& t, int64_t row, int64_t g) {
  const float* x = t.x + row * t.x_stride + g * t.group_size;
  const int64_t count = std::min(t.group_size, t.k - g * t.group_size);
  uint32_t largest_bits = 0;  // as bits, so that a NaN is the largest
  for (int64_t i = 0; i < count; ++i)
    largest_bits = std::max(largest_bits, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  const float largest = std::bit_cast<float>(largest_bits);
  const float scale = largest / 127.0f;
  const float inverse = largest >= kLeastMagnitude ? 127.0f / largest : 0.0f;
  auto* codes = reinterpret_cast<int8_t*>(t.values + row * t.value_stride) + g * t.group_size;
  int32_t sum = 0;
  for (int64_t i = 0; i < t.group_size; ++i) {
    const float q = i < count ? std::nearbyint(x[i] * inverse) : 0.0f;
    codes[i] = std::isnan(q) ? int8_t{-128} : static_cast<int8_t>(q);
    sum += codes[i];
  }
  const int64_t at = row * t.groups + g;
  t.value_scales[at] = scale;
  t.corrections[at] = -t.code_zero * sum;
  t.minimum_factors[at] = scale * static_cast<float>(sum);
}

void convert(const LinearTask& t, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    if (t.format == WeightFormat::bf16)
      convert_bf16(t, row);
    else
      for (int64_t g = 0; g < t.groups; ++g) convert_group(t, row, g);
  }
}

float dot_float(const LinearTask& t, const uint8_t* panel, int64_t row, int64_t c) {
  const char* values = t.values + row * t.value_stride;
  float sum = 0.0f;
  for (int64_t k = 0; k < t.k; ++k) {
    if (t.format == WeightFormat::f32)
      sum += reinterpret_cast<const float*>(values)[k] *
             reinterpret_cast<const float*>(panel)[k * kPanel + c];
    else
      sum += to_float(reinterpret_cast<const bf16*>(values)[k]) *
             to_float(reinterpret_cast<const bf16*>(panel)[(k / 2 * kPanel + c) * 2 + k % 2]);
  }
  return sum;
}

// Of the stored codes. Exact: at most 255 * 128 in magnitude for each k.
int32_t dot_group(const LinearTask& t, const uint8_t* panel, const int8_t* codes, int64_t g,
                  int64_t c) {
  int32_t dot = 0;
  for (int64_t k = g * t.group_size; k < (g + 1) * t.group_size; ++k) {
    if (t.format != WeightFormat::int4_g32) {
      dot += codes[k] * panel[(k / 4 * kPanel + c) * 4 + k % 4];
    } else {
      const int byte = panel[(k / 8 * kPanel + c) * 4 + k % 4];
      dot += codes[k] * (k / 4 % 2 == 0 ? byte & 15 : byte >> 4);
    }
  }
  return dot;
}

float dot_integer(const LinearTask& t, int64_t panel_idx, int64_t row, int64_t c) {
  const uint8_t* panel = t.panels + panel_idx * t.panel_bytes;
  const auto* codes = reinterpret_cast<const int8_t*>(t.values + row * t.value_stride);
  float sum = 0.0f;
  for (int64_t g = 0; g < t.groups; ++g) {
    const int64_t at = panel_idx * t.panel_scales + g * kPanel + c;
    const float scale = f16_to_float(t.scales[at]) * t.value_scales[row * t.groups + g];
    const int32_t dot = dot_group(t, panel, codes, g, c) + t.corrections[row * t.groups + g];
    sum += static_cast<float>(dot) * scale;
    if (t.minima) sum += f16_to_float(t.minima[at]) * t.minimum_factors[row * t.groups + g];
  }
  return sum;
}

void multiply(const LinearTask& t, int64_t begin, int64_t end, const char* /*next*/) {
  const bool integer = is_integer(t.format);
  for (int64_t column = begin * kUnit; column < std::min(end * kUnit, t.n); ++column) {
    const int64_t panel = column / kPanel, c = column % kPanel;
    for (int64_t row = 0; row < t.rows; ++row) {
      const float sum = integer ? dot_integer(t, panel, row, c)
                                : dot_float(t, t.panels + panel * t.panel_bytes, row, c);
      t.out[row * t.out_stride + column] = t.bias ? sum + t.bias[column] : sum;
    }
  }
}

}  // namespace

LinearKernels linear_kernels_reference() { return {1, 1, convert, multiply}; }

}  // namespace millrace::cpu
