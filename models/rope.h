// Rotary tables for every RoPE scaling in use, as the Hugging Face reference computes them.
#pragma once

#include <vector>

#include "models/config.h"

namespace millrace {

// Inverse frequencies [rotary_dim / 2] and the factor on cos and sin, for a model run with
// `max_len` positions. Dynamic NTK and longrope depend on the length; it is fixed for the life of
// the model, so that a token's rotation never depends on when it was computed. Arithmetic is in
// float, step by step as the reference does it: at position 60000 one unit in the last place of a
// frequency is an angle of 0.004.
struct RopeFrequencies {
  std::vector<float> inverse;
  float attention_factor = 1.0f;
};
RopeFrequencies rope_frequencies(const RopeConfig& config, int64_t max_positions, int64_t max_len);

// cos and sin [max_len, rotary_dim / 2], already multiplied by the attention factor.
struct RopeValues {
  std::vector<float> cos, sin;
};
RopeValues make_rope_values(const RopeConfig& config, int64_t max_positions, int64_t max_len);

}  // namespace millrace
