// Conversion of one panel (64 output rows) of a planned linear into its packed format. One
// PanelConverter per thread; different panels may be converted by different threads at once.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/load/weight_plan.h"
#include "kernels/core/weight.h"

namespace millrace {

class PanelConverter {
 public:
  void convert(const PlannedLinear& linear, const LinearWeight& weight, int64_t panel);

 private:
  struct StoredRow {
    StoredType type;
    const uint8_t* data;
  };
  StoredRow stored_row(const PlannedLinear& linear, int64_t row) const;
  void decode_row_floats(const StoredRow& row, int64_t first, int64_t k, float* out);
  void decode_row_codes(const StoredRow& row, int64_t first, int64_t k, int8_t* q, float* scales,
                        float* minima);
  void convert_floats(const PlannedLinear& linear, const LinearWeight& weight, int64_t panel);
  void convert_int8(const PlannedLinear& linear, const LinearWeight& weight, int64_t panel);
  void convert_int4(const PlannedLinear& linear, const LinearWeight& weight, int64_t panel);

  // One panel: [64, k] values or codes and [64, k / 32] scales and minima.
  std::vector<float> floats_, scales_, minima_;
  std::vector<int8_t> codes_;
  // One row where its blocks reach beyond this rank's columns.
  std::vector<float> wide_floats_, wide_scales_, wide_minima_;
  std::vector<int8_t> wide_codes_;
};

}  // namespace millrace
