// LinearWeight: the packed weight of y = x W^T + bias, W [n, k]. One of a small set of internal
// layouts; every checkpoint format is converted into one of them at load. The view does not own
// memory (the loader's WeightStore does). Immutable after loading.
//
// Packed layout: panels of kPanel output columns, so that one row and many rows of x walk the same
// memory in the same order (batch invariance). n is padded to a multiple of kPanel with zeros, k
// to a multiple of the format's k step. Panel p, column c (0..63):
//   f32       [k][64] float
//   bf16      [k/2][64][2] bf16: pairs along k
//   int8      [k/4][64][4] uint8 = q + 128: quads along k
//   int4_g32  [k/8][64][4] bytes: low nibbles quad 2t, high nibbles quad 2t+1, codes 0..15
// Scales of the integer formats are f16: one for each column (int8_channel, [panel][64]) or for
// each column and group of 32 k (int8_g32, int4_g32, [panel][k/32][64]), as are the latter's
// optional minima:
//   int8: w = scale * q (+ minimum)
//   int4: w = scale * code + minimum, or without minima w = scale * (code - 8)
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

enum class WeightFormat : uint8_t { f32, bf16, int8_channel, int8_g32, int4_g32 };

inline constexpr int64_t kPanel = 64;
inline constexpr int64_t kGroup = 32;  // k elements that share a scale

constexpr const char* weight_format_name(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32: return "float32";
    case WeightFormat::bf16: return "bfloat16";
    case WeightFormat::int8_channel: return "int8 per channel";
    case WeightFormat::int8_g32: return "int8 group 32";
    case WeightFormat::int4_g32: return "int4 group 32";
  }
  return "?";
}

// Whether scales belong to groups of kGroup inputs, which k must then be a multiple of.
constexpr bool has_groups(WeightFormat format) {
  return format == WeightFormat::int8_g32 || format == WeightFormat::int4_g32;
}
constexpr bool is_integer(WeightFormat format) {
  return has_groups(format) || format == WeightFormat::int8_channel;
}

struct LinearWeight {
  WeightFormat format = WeightFormat::f32;
  int64_t n = 0;  // outputs
  int64_t k = 0;  // inputs
  uint8_t* panels = nullptr;
  uint16_t* scales = nullptr;   // integer formats
  uint16_t* minima = nullptr;   // of an asymmetric source, else null
  const float* bias = nullptr;  // [n] or null

  int64_t num_panels() const { return (n + kPanel - 1) / kPanel; }
};

constexpr int64_t weight_k_step(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32: return 1;
    case WeightFormat::bf16: return 2;
    case WeightFormat::int8_channel: return 4;
    case WeightFormat::int8_g32:
    case WeightFormat::int4_g32: return kGroup;
  }
  return 1;
}
constexpr int64_t padded_k(WeightFormat format, int64_t k) {
  const int64_t step = weight_k_step(format);
  return (k + step - 1) / step * step;
}
// Bytes of one panel's codes, and of one panel's scales (equally of its minima).
constexpr int64_t panel_bytes(WeightFormat format, int64_t k) {
  const int64_t elements = padded_k(format, k) * kPanel;
  switch (format) {
    case WeightFormat::f32: return elements * 4;
    case WeightFormat::bf16: return elements * 2;
    case WeightFormat::int8_channel:
    case WeightFormat::int8_g32: return elements;
    case WeightFormat::int4_g32: return elements / 2;
  }
  return 0;
}
constexpr int64_t panel_scale_bytes(WeightFormat format, int64_t k) {
  if (format == WeightFormat::int8_channel) return kPanel * 2;
  return has_groups(format) ? padded_k(format, k) / kGroup * kPanel * 2 : 0;
}

// The stored code of an integer format that means a weight of 0; 0 where minima decide.
constexpr int32_t code_zero(const LinearWeight& w) {
  if (w.format == WeightFormat::int8_g32 || w.format == WeightFormat::int8_channel) return 128;
  return w.format == WeightFormat::int4_g32 && !w.minima ? 8 : 0;
}

// Packing, one panel at a time; different panels may be packed by different threads at once.
// `rows` (<= kPanel) is how many of the panel's columns the source has; the rest become zero.
// Sources are row-major with k elements a row (k / 32 scales a row; k must then be a multiple of
// 32). For float sources into an integer format the panel is quantised: symmetric, round to
// nearest, scale = max|w| / 127 (int8); asymmetric min/max (int4 with minima); by the value of
// largest magnitude, which becomes code 0 (int4 without, as Q4_0).
void pack_panel(const LinearWeight& w, int64_t panel, const float* source, int64_t rows);
void pack_panel_int8(const LinearWeight& w, int64_t panel, const int8_t* q, const float* scales,
                     const float* minima /* null if symmetric */, int64_t rows);
void pack_panel_int4(const LinearWeight& w, int64_t panel, const uint8_t* codes,
                     const float* scales, const float* minima /* null if symmetric */,
                     int64_t rows);
// Row `row` of W as floats [k]: what the format stores, exactly.
void unpack_row(const LinearWeight& w, int64_t row, float* out);

}  // namespace millrace
