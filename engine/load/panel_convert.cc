#include "engine/load/panel_convert.h"

#include <algorithm>

#include "engine/load/dequant.h"

namespace millrace {
namespace {

// Blocks that cover columns [first, first + k).
struct Cover {
  int64_t first = 0, size = 0;
  bool exact = false;
};

Cover cover(const StoredTypeInfo& info, int64_t first, int64_t k) {
  Cover c;
  c.first = first / info.elements * info.elements;
  c.size = (first + k + info.elements - 1) / info.elements * info.elements - c.first;
  c.exact = c.first == first && c.size == k;
  return c;
}

template <class T>
void grow(std::vector<T>& v, int64_t n) {
  if (static_cast<int64_t>(v.size()) < n) v.resize(static_cast<size_t>(n));
}

}  // namespace

void PanelConverter::convert(const PlannedLinear& linear, const LinearWeight& weight,
                             int64_t panel) {
  if (linear.requantised) return convert_floats(linear, weight, panel);
  switch (weight.format) {
    case WeightFormat::f32:
    case WeightFormat::bf16:
    case WeightFormat::int8_channel: return convert_floats(linear, weight, panel);
    case WeightFormat::int8_g32: return convert_int8(linear, weight, panel);
    case WeightFormat::int4_g32: return convert_int4(linear, weight, panel);
  }
}

PanelConverter::StoredRow PanelConverter::stored_row(const PlannedLinear& linear,
                                                     int64_t row) const {
  for (const PlannedPart& part : linear.parts) {
    if (row < part.rows) {
      const StoredTensor& tensor = *part.weight;
      const StoredTypeInfo& info = stored_type_info(tensor.type);
      const int64_t row_bytes = tensor.columns() / info.elements * info.bytes;
      return {tensor.type, tensor.data + part.stored_row(part.first_row + row) * row_bytes};
    }
    row -= part.rows;
  }
  fatal("a panel reaches beyond its parts");
}

void PanelConverter::decode_row_floats(const StoredRow& row, int64_t first, int64_t k, float* out) {
  const StoredTypeInfo& info = stored_type_info(row.type);
  const Cover c = cover(info, first, k);
  const uint8_t* source = row.data + c.first / info.elements * info.bytes;
  if (c.exact) return decode_floats(row.type, source, k, out);
  grow(wide_floats_, c.size);
  decode_floats(row.type, source, c.size, wide_floats_.data());
  std::copy_n(wide_floats_.data() + (first - c.first), k, out);
}

// Formats with groups of 16 are requantised; the others keep their codes.
void PanelConverter::decode_row_codes(const StoredRow& row, int64_t first, int64_t k, int8_t* q,
                                      float* scales, float* minima) {
  if (!has_minimum(row.type) || stored_group_size(row.type) != kGroup) {
    std::fill_n(minima, k / kGroup, 0.0f);
  }
  if (stored_group_size(row.type) != kGroup) {
    grow(floats_, k);
    decode_row_floats(row, first, k, floats_.data());
    return requantise_int8(floats_.data(), k, q, scales);
  }
  const StoredTypeInfo& info = stored_type_info(row.type);
  const Cover c = cover(info, first, k);
  const uint8_t* source = row.data + c.first / info.elements * info.bytes;
  if (c.exact) return decode_codes(row.type, source, k, q, scales, minima);
  grow(wide_codes_, c.size);
  grow(wide_scales_, c.size / kGroup);
  grow(wide_minima_, c.size / kGroup);
  decode_codes(row.type, source, c.size, wide_codes_.data(), wide_scales_.data(),
               wide_minima_.data());
  const int64_t skip = first - c.first;
  std::copy_n(wide_codes_.data() + skip, k, q);
  std::copy_n(wide_scales_.data() + skip / kGroup, k / kGroup, scales);
  if (has_minimum(row.type)) std::copy_n(wide_minima_.data() + skip / kGroup, k / kGroup, minima);
}

void PanelConverter::convert_floats(const PlannedLinear& linear, const LinearWeight& w,
                                    int64_t panel) {
  const int64_t rows = std::min(kPanel, w.n - panel * kPanel);
  grow(floats_, kPanel * w.k);
  for (int64_t r = 0; r < rows; ++r) {
    decode_row_floats(stored_row(linear, panel * kPanel + r), linear.first_column, w.k,
                      floats_.data() + r * w.k);
  }
  pack_panel(w, panel, floats_.data(), rows);
}

void PanelConverter::convert_int8(const PlannedLinear& linear, const LinearWeight& w,
                                  int64_t panel) {
  const int64_t rows = std::min(kPanel, w.n - panel * kPanel), groups = w.k / kGroup;
  grow(codes_, kPanel * w.k);
  grow(scales_, kPanel * groups);
  grow(minima_, kPanel * groups);
  for (int64_t r = 0; r < rows; ++r) {
    decode_row_codes(stored_row(linear, panel * kPanel + r), linear.first_column, w.k,
                     codes_.data() + r * w.k, scales_.data() + r * groups,
                     minima_.data() + r * groups);
  }
  pack_panel_int8(w, panel, codes_.data(), scales_.data(), w.minima ? minima_.data() : nullptr,
                  rows);
}

void PanelConverter::convert_int4(const PlannedLinear& linear, const LinearWeight& w,
                                  int64_t panel) {
  const int64_t rows = std::min(kPanel, w.n - panel * kPanel), groups = w.k / kGroup;
  grow(codes_, kPanel * w.k);
  grow(scales_, kPanel * groups);
  grow(minima_, kPanel * groups);
  for (int64_t r = 0; r < rows; ++r) {
    const StoredRow row = stored_row(linear, panel * kPanel + r);
    int8_t* q = codes_.data() + r * w.k;
    float* scales = scales_.data() + r * groups;
    float* minima = minima_.data() + r * groups;
    decode_row_codes(row, linear.first_column, w.k, q, scales, minima);
    if (has_minimum(row.type)) continue;
    // Signed codes -8..7 become 0..15; beside parts with minima theirs is -8 scales, exactly.
    for (int64_t i = 0; i < w.k; ++i) q[i] = static_cast<int8_t>(q[i] + 8);
    for (int64_t g = 0; g < groups; ++g) minima[g] = -8.0f * scales[g];
  }
  pack_panel_int4(w, panel, reinterpret_cast<const uint8_t*>(codes_.data()), scales_.data(),
                  w.minima ? minima_.data() : nullptr, rows);
}

}  // namespace millrace
