#include "models/rope.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/check.h"

namespace millrace {
namespace {

// base^(2i / dim), the wavelengths' growth; [dim / 2].
std::vector<float> position_frequencies(float base, int64_t dim) {
  std::vector<float> powers(dim / 2);
  for (int64_t i = 0; i < dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    powers[i] = static_cast<float>(std::pow(static_cast<double>(base), exponent));
  }
  return powers;
}

std::vector<float> inverse_frequencies(float base, int64_t dim) {
  std::vector<float> inverse = position_frequencies(base, dim);
  for (float& f : inverse) f = 1.0f / f;
  return inverse;
}

// Llama 3.1: long wavelengths are slowed down by `factor`, short ones kept, a ramp in between.
void scale_llama3(const RopeConfig& r, std::vector<float>& inverse) {
  const float original = static_cast<float>(r.original_max_positions);
  const float low = static_cast<float>(r.low_freq_factor);
  const float high = static_cast<float>(r.high_freq_factor);
  const float factor = static_cast<float>(r.factor);
  for (float& f : inverse) {
    const float wavelength = static_cast<float>(2.0 * M_PI) / f;
    if (wavelength > original / low) {
      f = f / factor;
    } else if (wavelength >= original / high) {
      const float smooth = (original / wavelength - low) / (high - low);
      f = (1.0f - smooth) * f / factor + smooth * f;
    }
  }
}

double yarn_mscale(double scale, double mscale) {
  return scale <= 1.0 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0;
}

// YaRN (Peng et al., 2023): interpolates wavelengths longer than the original context, keeps short
// ones, and ramps linearly over the dimensions between beta_fast and beta_slow rotations.
RopeFrequencies yarn(const RopeConfig& r, int64_t max_positions) {
  const int64_t dim = r.rotary_dim;
  const double original =
      static_cast<double>(r.original_max_positions > 0 ? r.original_max_positions : max_positions);
  const auto correction_dim = [&](double rotations) {
    return static_cast<double>(dim) * std::log(original / (rotations * 2.0 * M_PI)) /
           (2.0 * std::log(r.theta));
  };
  double low = correction_dim(r.beta_fast), high = correction_dim(r.beta_slow);
  if (r.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;

  RopeFrequencies out;
  const std::vector<float> powers = position_frequencies(static_cast<float>(r.theta), dim);
  for (int64_t i = 0; i < dim / 2; ++i) {
    const float ramp =
        static_cast<float>(std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0));
    const float keep = 1.0f - ramp;
    const float extrapolated = 1.0f / powers[i];
    const float interpolated = 1.0f / (static_cast<float>(r.factor) * powers[i]);
    out.inverse.push_back(interpolated * (1.0f - keep) + extrapolated * keep);
  }
  if (r.attention_factor > 0.0)
    out.attention_factor = static_cast<float>(r.attention_factor);
  else if (r.mscale > 0.0 && r.mscale_all_dim > 0.0)
    out.attention_factor = static_cast<float>(yarn_mscale(r.factor, r.mscale) /
                                              yarn_mscale(r.factor, r.mscale_all_dim));
  else
    out.attention_factor = static_cast<float>(yarn_mscale(r.factor, 1.0));
  return out;
}

// LongRoPE (Ding et al., 2024): one factor a dimension, for contexts up to and beyond the original.
RopeFrequencies longrope(const RopeConfig& r, int64_t max_positions, int64_t max_len) {
  const int64_t original = r.original_max_positions > 0 ? r.original_max_positions : max_positions;
  const std::vector<double>& factors = max_len > original ? r.long_factor : r.short_factor;
  MR_CHECK_OP(static_cast<int64_t>(factors.size()), ==, r.rotary_dim / 2);
  RopeFrequencies out;
  const std::vector<float> powers = position_frequencies(static_cast<float>(r.theta), r.rotary_dim);
  for (size_t i = 0; i < powers.size(); ++i)
    out.inverse.push_back(1.0f / (static_cast<float>(factors[i]) * powers[i]));
  if (r.attention_factor > 0.0)
    out.attention_factor = static_cast<float>(r.attention_factor);
  else if (r.factor > 1.0)
    out.attention_factor = static_cast<float>(
        std::sqrt(1.0 + std::log(r.factor) / std::log(static_cast<double>(original))));
  return out;
}

// Dynamic NTK: the base grows with the length beyond the original context.
float dynamic_base(const RopeConfig& r, int64_t max_positions, int64_t max_len) {
  const double original =
      static_cast<double>(r.original_max_positions > 0 ? r.original_max_positions : max_positions);
  const double length = std::max(static_cast<double>(max_len), original);
  const double dim = static_cast<double>(r.rotary_dim);
  return static_cast<float>(
      r.theta * std::pow(r.factor * length / original - (r.factor - 1.0), dim / (dim - 2.0)));
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& r, int64_t max_positions, int64_t max_len) {
  RopeFrequencies out;
  const float theta = static_cast<float>(r.theta);
  switch (r.scaling) {
    case RopeScaling::none: out.inverse = inverse_frequencies(theta, r.rotary_dim); break;
    case RopeScaling::linear:
      out.inverse = inverse_frequencies(theta, r.rotary_dim);
      for (float& f : out.inverse) f /= static_cast<float>(r.factor);
      break;
    case RopeScaling::dynamic_ntk:
      out.inverse = inverse_frequencies(dynamic_base(r, max_positions, max_len), r.rotary_dim);
      break;
    case RopeScaling::llama3:
      out.inverse = inverse_frequencies(theta, r.rotary_dim);
      scale_llama3(r, out.inverse);
      break;
    case RopeScaling::yarn: return yarn(r, max_positions);
    case RopeScaling::longrope: return longrope(r, max_positions, max_len);
  }
  return out;
}

RopeValues make_rope_values(const RopeConfig& config, int64_t max_positions, int64_t max_len) {
  const RopeFrequencies f = rope_frequencies(config, max_positions, max_len);
  const size_t half = f.inverse.size();
  RopeValues values;
  values.cos.resize(static_cast<size_t>(max_len) * half);
  values.sin.resize(values.cos.size());
  for (int64_t position = 0; position < max_len; ++position) {
    for (size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * f.inverse[i];
      const size_t at = static_cast<size_t>(position) * half + i;
      values.cos[at] =
          static_cast<float>(std::cos(static_cast<double>(angle))) * f.attention_factor;
      values.sin[at] =
          static_cast<float>(std::sin(static_cast<double>(angle))) * f.attention_factor;
    }
  }
  return values;
}

}  // namespace millrace
