#include "kernels/core/weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/core/check.h"
#include "kernels/core/dtype.h"

namespace millrace {
namespace {

constexpr float kMaxF16 = 65504.0f;

uint8_t* panel_codes(const LinearWeight& w, int64_t panel) {
  return w.panels + panel * panel_bytes(w.format, w.k);
}
int64_t panel_scale_offset(const LinearWeight& w, int64_t panel) {
  return panel * panel_scale_bytes(w.format, w.k) / 2;
}

// Where element (k, column) of a panel lives; see the layout in weight.h.
int64_t quad_offset(int64_t k, int64_t column) { return (k / 4 * kPanel + column) * 4 + k % 4; }
struct Nibble {
  int64_t byte;
  int shift;
};
Nibble nibble_of(int64_t k, int64_t column) {
  return {(k / 8 * kPanel + column) * 4 + k % 4, k / 4 % 2 == 0 ? 0 : 4};
}

void set_nibble(uint8_t* codes, int64_t k, int64_t column, uint8_t code) {
  const Nibble at = nibble_of(k, column);
  codes[at.byte] = static_cast<uint8_t>(codes[at.byte] | (code << at.shift));
}

uint16_t storable_scale(float scale) { return float_to_f16(std::clamp(scale, -kMaxF16, kMaxF16)); }

// Zero weights: code 128 stands for 0 in int8, and a scale (and minimum) of 0 makes any int4 code
// 0.
void clear_panel(const LinearWeight& w, int64_t panel) {
  const int filler = w.format == WeightFormat::int4_g32 ? 0 : code_zero(w);
  std::memset(panel_codes(w, panel), filler, static_cast<size_t>(panel_bytes(w.format, w.k)));
  const auto bytes = static_cast<size_t>(panel_scale_bytes(w.format, w.k));
  if (w.scales) std::memset(w.scales + panel_scale_offset(w, panel), 0, bytes);
  if (w.minima) std::memset(w.minima + panel_scale_offset(w, panel), 0, bytes);
}

void pack_f32(const LinearWeight& w, int64_t panel, const float* source, int64_t rows) {
  auto* out = reinterpret_cast<float*>(panel_codes(w, panel));
  for (int64_t c = 0; c < rows; ++c)
    for (int64_t k = 0; k < w.k; ++k) out[k * kPanel + c] = source[c * w.k + k];
}

void pack_bf16(const LinearWeight& w, int64_t panel, const float* source, int64_t rows) {
  auto* out = reinterpret_cast<bf16*>(panel_codes(w, panel));
  for (int64_t c = 0; c < rows; ++c)
    for (int64_t k = 0; k < w.k; ++k)
      out[(k / 2 * kPanel + c) * 2 + k % 2] = to_bf16(source[c * w.k + k]);
}

// `count` values of one column from `first` on, which share the scale at index `g`.
void quantise_int8(const LinearWeight& w, int64_t panel, int64_t c, int64_t g, int64_t first,
                   const float* source, int64_t count) {
  float largest = 0.0f;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(source[i]));
  const uint16_t stored = storable_scale(largest / 127.0f);
  const float scale = f16_to_float(stored);
  w.scales[panel_scale_offset(w, panel) + g * kPanel + c] = stored;
  uint8_t* out = panel_codes(w, panel);
  for (int64_t i = 0; i < count; ++i) {
    const float q = scale > 0.0f ? std::nearbyint(source[i] / scale) : 0.0f;
    const int clamped = static_cast<int>(std::clamp(q, -127.0f, 127.0f));
    out[quad_offset(first + i, c)] = static_cast<uint8_t>(clamped + 128);
  }
}

void quantise_int4_symmetric(const LinearWeight& w, int64_t panel, int64_t c, int64_t g,
                             const float* source, int64_t count) {
  const float extreme = *std::max_element(
      source, source + count, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  const uint16_t stored = storable_scale(extreme / -8.0f);
  const float scale = f16_to_float(stored);
  w.scales[panel_scale_offset(w, panel) + g * kPanel + c] = stored;
  for (int64_t i = 0; i < count; ++i) {
    const float code = scale != 0.0f ? std::nearbyint(source[i] / scale) + 8.0f : 0.0f;
    set_nibble(panel_codes(w, panel), g * kGroup + i, c,
               static_cast<uint8_t>(std::clamp(code, 0.0f, 15.0f)));
  }
}

void quantise_int4(const LinearWeight& w, int64_t panel, int64_t c, int64_t g, const float* source,
                   int64_t count) {
  if (!w.minima) return quantise_int4_symmetric(w, panel, c, g, source, count);
  const auto [low, high] = std::minmax_element(source, source + count);
  const uint16_t stored_minimum = storable_scale(*low);
  const float minimum = f16_to_float(stored_minimum);
  const uint16_t stored = storable_scale((*high - minimum) / 15.0f);
  const float scale = f16_to_float(stored);
  const int64_t at = panel_scale_offset(w, panel) + g * kPanel + c;
  w.scales[at] = stored;
  w.minima[at] = stored_minimum;
  for (int64_t i = 0; i < count; ++i) {
    const float code = scale > 0.0f ? std::nearbyint((source[i] - minimum) / scale) : 0.0f;
    set_nibble(panel_codes(w, panel), g * kGroup + i, c,
               static_cast<uint8_t>(std::clamp(code, 0.0f, 15.0f)));
  }
}

template <class Quantise>
void for_each_group(const LinearWeight& w, const float* source, int64_t rows, Quantise&& quantise) {
  for (int64_t c = 0; c < rows; ++c)
    for (int64_t k = 0; k < w.k; k += kGroup)
      quantise(c, k / kGroup, source + c * w.k + k, std::min(kGroup, w.k - k));
}

void store_scales(const LinearWeight& w, int64_t panel, const float* source, uint16_t* target,
                  int64_t rows) {
  const int64_t groups = w.k / kGroup;
  uint16_t* out = target + panel_scale_offset(w, panel);
  for (int64_t c = 0; c < rows; ++c)
    for (int64_t g = 0; g < groups; ++g)
      out[g * kPanel + c] = storable_scale(source[c * groups + g]);
}

void check_panel(const LinearWeight& w, int64_t panel, int64_t rows) {
  MR_CHECK_OP(panel, <, w.num_panels());
  MR_CHECK_OP(rows, <=, kPanel);
}

}  // namespace

void pack_panel(const LinearWeight& w, int64_t panel, const float* source, int64_t rows) {
  check_panel(w, panel, rows);
  clear_panel(w, panel);
  switch (w.format) {
    case WeightFormat::f32: return pack_f32(w, panel, source, rows);
    case WeightFormat::bf16: return pack_bf16(w, panel, source, rows);
    case WeightFormat::int8_channel:
      for (int64_t c = 0; c < rows; ++c) quantise_int8(w, panel, c, 0, 0, source + c * w.k, w.k);
      return;
    case WeightFormat::int8_g32:
      return for_each_group(w, source, rows, [&](int64_t c, int64_t g, const float* s, int64_t n) {
        quantise_int8(w, panel, c, g, g * kGroup, s, n);
      });
    case WeightFormat::int4_g32:
      return for_each_group(w, source, rows, [&](int64_t c, int64_t g, const float* s, int64_t n) {
        quantise_int4(w, panel, c, g, s, n);
      });
  }
}

void pack_panel_int8(const LinearWeight& w, int64_t panel, const int8_t* q, const float* scales,
                     const float* minima, int64_t rows) {
  check_panel(w, panel, rows);
  MR_CHECK(w.format == WeightFormat::int8_g32);
  MR_CHECK_OP(w.k % kGroup, ==, 0);
  MR_CHECK_OP(minima != nullptr, ==, w.minima != nullptr);
  clear_panel(w, panel);
  uint8_t* out = panel_codes(w, panel);
  for (int64_t c = 0; c < rows; ++c)
    for (int64_t k = 0; k < w.k; ++k)
      out[quad_offset(k, c)] = static_cast<uint8_t>(q[c * w.k + k] + 128);
  store_scales(w, panel, scales, w.scales, rows);
  if (minima) store_scales(w, panel, minima, w.minima, rows);
}

void pack_panel_int4(const LinearWeight& w, int64_t panel, const uint8_t* codes,
                     const float* scales, const float* minima, int64_t rows) {
  check_panel(w, panel, rows);
  MR_CHECK(w.format == WeightFormat::int4_g32);
  MR_CHECK_OP(w.k % kGroup, ==, 0);
  MR_CHECK_OP(minima != nullptr, ==, w.minima != nullptr);
  clear_panel(w, panel);
  uint8_t* out = panel_codes(w, panel);
  for (int64_t c = 0; c < rows; ++c)
    for (int64_t k = 0; k < w.k; ++k) set_nibble(out, k, c, codes[c * w.k + k] & 15);
  store_scales(w, panel, scales, w.scales, rows);
  if (minima) store_scales(w, panel, minima, w.minima, rows);
}

void unpack_row(const LinearWeight& w, int64_t row, float* out) {
  MR_CHECK_OP(row, <, w.n);
  const int64_t panel = row / kPanel, c = row % kPanel;
  const uint8_t* codes = panel_codes(w, panel);
  const int64_t scale_at = panel_scale_offset(w, panel) + c;
  const auto scaled = [&](int64_t k, int code) {
    const int64_t at = has_groups(w.format) ? scale_at + k / kGroup * kPanel : scale_at;
    const float value = f16_to_float(w.scales[at]) * static_cast<float>(code - code_zero(w));
    return w.minima ? value + f16_to_float(w.minima[at]) : value;
  };
  switch (w.format) {
    case WeightFormat::f32:
      for (int64_t k = 0; k < w.k; ++k)
        out[k] = reinterpret_cast<const float*>(codes)[k * kPanel + c];
      return;
    case WeightFormat::bf16:
      for (int64_t k = 0; k < w.k; ++k)
        out[k] = to_float(reinterpret_cast<const bf16*>(codes)[(k / 2 * kPanel + c) * 2 + k % 2]);
      return;
    case WeightFormat::int8_channel:
    case WeightFormat::int8_g32:
      for (int64_t k = 0; k < w.k; ++k) out[k] = scaled(k, codes[quad_offset(k, c)]);
      return;
    case WeightFormat::int4_g32:
      for (int64_t k = 0; k < w.k; ++k) {
        const Nibble at = nibble_of(k, c);
        out[k] = scaled(k, (codes[at.byte] >> at.shift) & 15);
      }
      return;
  }
}

}  // namespace millrace
