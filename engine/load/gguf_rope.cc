#include "engine/load/gguf_rope.h"

#include <cmath>
#include <string>

#include "engine/load/dequant.h"

namespace millrace {
namespace {

// The factor that llama3 scaling divides inverse frequency i by (Llama 3.1 model card).
double llama3_factor(const RopeConfig& r, int64_t i) {
  const double wavelength =
      2.0 * M_PI *
      std::pow(r.theta, 2.0 * static_cast<double>(i) / static_cast<double>(r.rotary_dim));
  const double original = static_cast<double>(r.original_max_positions);
  if (wavelength < original / r.high_freq_factor) return 1.0;
  if (wavelength > original / r.low_freq_factor) return r.factor;
  const double smooth =
      (original / wavelength - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
  return 1.0 / ((1.0 - smooth) / r.factor + smooth);
}

// A tensor that has no Hugging Face name, by its name in the file.
const StoredTensor* find_stored(const TensorCatalog& catalog, std::string_view name) {
  for (const StoredTensor& tensor : catalog.tensors()) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

StatusOr<std::vector<float>> read_factors(const TensorCatalog& catalog, const StoredTensor& tensor,
                                          int64_t half) {
  if (tensor.shape != std::vector<int64_t>{half} || tensor.type != StoredType::f32) {
    return absl::InvalidArgumentError(catalog.file(tensor) + ": tensor \"" + tensor.name +
                                      "\" must be F32 of shape [" + std::to_string(half) +
                                      "], not " + stored_type_info(tensor.type).name + " " +
                                      shape_text(tensor.shape) + ".");
  }
  std::vector<float> values(static_cast<size_t>(half));
  decode_floats(tensor.type, tensor.data, half, values.data());
  return values;
}

Status read_scaling(const GgufFile& file, const std::string& prefix, int64_t declared,
                    RopeConfig& r) {
  MR_ASSIGN_OR_RETURN(const auto type, file.string(prefix + "scaling.type"));
  MR_ASSIGN_OR_RETURN(auto factor, file.number(prefix + "scaling.factor"));
  if (!factor) {
    MR_ASSIGN_OR_RETURN(factor, file.number(prefix + "scale_linear"));
  }
  MR_ASSIGN_OR_RETURN(const auto original,
                      file.integer(prefix + "scaling.original_context_length"));
  MR_ASSIGN_OR_RETURN(const auto attention, file.number(prefix + "scaling.attn_factor"));
  const std::string_view name = type ? *type : factor && *factor != 1.0 ? "linear" : "none";
  r.factor = factor.value_or(1.0);
  r.original_max_positions = original.value_or(declared);
  if (name == "none") {
    r.factor = 1.0;
    return absl::OkStatus();
  }
  if (name == "linear") {
    r.scaling = RopeScaling::linear;
  } else if (name == "yarn") {
    r.scaling = RopeScaling::yarn;
    MR_ASSIGN_OR_RETURN(const auto fast, file.number(prefix + "scaling.yarn_beta_fast"));
    MR_ASSIGN_OR_RETURN(const auto slow, file.number(prefix + "scaling.yarn_beta_slow"));
    r.beta_fast = fast.value_or(r.beta_fast);
    r.beta_slow = slow.value_or(r.beta_slow);
    // llama.cpp multiplies its factor with YaRN's own; ours replaces it.
    if (attention) r.attention_factor = *attention * (1.0 + 0.1 * std::log(r.factor));
  } else if (name == "longrope") {
    r.scaling = RopeScaling::longrope;
    r.attention_factor = attention.value_or(0.0);
  } else {
    return absl::InvalidArgumentError(file.name() + ": key \"" + prefix + "scaling.type\" is \"" +
                                      std::string(name) +
                                      "\"; none, linear, yarn and longrope are supported.");
  }
  return absl::OkStatus();
}

}  // namespace

bool recognise_llama3_factors(const std::vector<float>& factors, int64_t original_max_positions,
                              RopeConfig& rope) {
  RopeConfig candidate = rope;
  candidate.scaling = RopeScaling::llama3;
  candidate.factor = factors.empty() ? 1.0 : static_cast<double>(factors.back());
  candidate.low_freq_factor = 1.0;
  candidate.high_freq_factor = 4.0;
  for (const int64_t original : {original_max_positions, int64_t{8192}}) {
    candidate.original_max_positions = original;
    bool equal = candidate.factor >= 1.0;
    for (size_t i = 0; i < factors.size() && equal; ++i) {
      const double expected = llama3_factor(candidate, static_cast<int64_t>(i));
      equal = std::fabs(static_cast<double>(factors[i]) - expected) <= 1e-4 * expected;
    }
    if (equal) {
      rope = candidate;
      return true;
    }
  }
  return false;
}

StatusOr<RopeConfig> gguf_rope_config(const GgufFile& file, const TensorCatalog& catalog,
                                      std::string_view architecture, const ModelConfig& config) {
  const std::string prefix = std::string(architecture) + ".rope.";
  RopeConfig r;
  MR_ASSIGN_OR_RETURN(const auto rotary, file.integer(prefix + "dimension_count"));
  MR_ASSIGN_OR_RETURN(const auto theta, file.number(prefix + "freq_base"));
  r.rotary_dim = rotary.value_or(config.head_dim);
  r.theta = theta.value_or(r.theta);
  if (r.rotary_dim <= 0 || r.rotary_dim > config.head_dim) {
    return absl::InvalidArgumentError(
        file.name() + ": key \"" + prefix + "dimension_count\" is " + std::to_string(r.rotary_dim) +
        "; it must be between 1 and the head size " + std::to_string(config.head_dim) + ".");
  }
  MR_RETURN_IF_ERROR(read_scaling(file, prefix, config.max_positions, r));
  const int64_t half = r.rotary_dim / 2;
  if (r.scaling == RopeScaling::longrope) {
    for (const auto& [name, factors] : {std::pair{"rope_factors_short.weight", &r.short_factor},
                                        std::pair{"rope_factors_long.weight", &r.long_factor}}) {
      const StoredTensor* tensor = find_stored(catalog, name);
      if (tensor == nullptr) {
        return absl::InvalidArgumentError(file.name() + ": longrope scaling needs tensor \"" +
                                          name + "\", which is missing.");
      }
      MR_ASSIGN_OR_RETURN(const std::vector<float> values, read_factors(catalog, *tensor, half));
      factors->assign(values.begin(), values.end());
    }
  }
  if (const StoredTensor* tensor = find_stored(catalog, "rope_freqs.weight")) {
    MR_ASSIGN_OR_RETURN(const std::vector<float> factors, read_factors(catalog, *tensor, half));
    if (r.scaling != RopeScaling::none ||
        !recognise_llama3_factors(factors, r.original_max_positions, r)) {
      return absl::InvalidArgumentError(
          file.name() + ": tensor \"rope_freqs.weight\" does not hold the factors of llama3 rope " +
          "scaling with low_freq_factor 1, high_freq_factor 4 and " +
          "original_max_position_embeddings 8192, the only ones that are supported.");
    }
  }
  return r;
}

}  // namespace millrace
