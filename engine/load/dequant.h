// Decoding of stored blocks, exactly as the formats define them. Every quantised format is, in the
// end, groups of 16 or 32 small integers with a scale and perhaps a minimum: w = scale * q (+
// minimum), in f32 and in that order. Pure functions; any thread.
#pragma once

#include <cstdint>

#include "engine/load/stored_tensor.h"

namespace millrace {

bool is_quantised(StoredType type);
// Elements that share a scale: 32, or 16 for Q2_K, Q3_K and Q6_K. Quantised types only.
int64_t stored_group_size(StoredType type);
// The values have a minimum beside the scale: Q4_1, Q5_1, Q2_K, Q4_K, Q5_K.
bool has_minimum(StoredType type);
// All q lie in 0..15 (with a minimum) or -8..7 (without), so they fit our int4 layout.
bool fits_int4(StoredType type);

// Decodes `n` elements (whole blocks) from `source`: q [n], scales and minima [n / group size].
// Minima are written only where has_minimum(type).
void decode_codes(StoredType type, const uint8_t* source, int64_t n, int8_t* q, float* scales,
                  float* minima);

// Decodes `n` elements (whole blocks) of any type.
void decode_floats(StoredType type, const uint8_t* source, int64_t n, float* out);

// Symmetric int8 codes for groups of 32 floats: scale = max|w| / 127 rounded to f16, q to nearest.
// `n` is a multiple of 32.
void requantise_int8(const float* w, int64_t n, int8_t* q, float* scales);

}  // namespace millrace
