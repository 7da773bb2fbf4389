#include "engine/load/hf_rope.h"

#include <algorithm>
#include <string>
#include <utility>

namespace millrace {
namespace {

constexpr std::pair<const char*, RopeScaling> kScalings[] = {
    {"default", RopeScaling::none},      {"none", RopeScaling::none},
    {"linear", RopeScaling::linear},     {"dynamic", RopeScaling::dynamic_ntk},
    {"llama3", RopeScaling::llama3},     {"yarn", RopeScaling::yarn},
    {"longrope", RopeScaling::longrope}, {"su", RopeScaling::longrope},
};

// The object with rope_type and its parameters; null if the checkpoint declares none. Parameters
// nested by layer type are accepted where all layer types agree.
StatusOr<const nlohmann::json*> find_parameters(const JsonFields& config) {
  const char* name = config.find("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling";
  const nlohmann::json* parameters = config.find(name);
  if (parameters == nullptr) return nullptr;
  if (!parameters->is_object()) return config.error(name, "must be an object");
  const nlohmann::json* nested = nullptr;
  for (const char* layer_type : {"full_attention", "sliding_attention"}) {
    const auto it = parameters->find(layer_type);
    if (it == parameters->end() || it->is_null()) continue;
    if (!it->is_object()) return config.error(name, "must hold an object for each layer type");
    if (nested != nullptr && *nested != *it) {
      return config.error(name, "differs between layer types, which is not supported");
    }
    nested = &*it;
  }
  return nested != nullptr ? nested : parameters;
}

StatusOr<RopeScaling> read_scaling(const JsonFields& rope) {
  MR_ASSIGN_OR_RETURN(auto type, rope.string("rope_type"));
  if (!type) {
    MR_ASSIGN_OR_RETURN(type, rope.string("type"));
  }
  if (!type) return RopeScaling::none;
  for (const auto& [name, scaling] : kScalings) {
    if (*type == name) return scaling;
  }
  return rope.error("rope_type", "is \"" + *type +
                                     "\"; default, linear, dynamic, llama3, yarn and longrope are "
                                     "supported");
}

Status read_number(const JsonFields& fields, const char* name, double& out) {
  MR_ASSIGN_OR_RETURN(const auto value, fields.number(name));
  if (value) out = *value;
  return absl::OkStatus();
}

Status read_parameters(const JsonFields& config, const JsonFields& rope, int64_t declared,
                       RopeConfig& r) {
  MR_ASSIGN_OR_RETURN(r.scaling, read_scaling(rope));
  MR_RETURN_IF_ERROR(read_number(rope, "rope_theta", r.theta));
  if (r.scaling == RopeScaling::none) return absl::OkStatus();
  // The length in training: beside the parameters in some checkpoints, which then takes precedence.
  MR_ASSIGN_OR_RETURN(auto original, config.integer("original_max_position_embeddings"));
  if (!original) {
    MR_ASSIGN_OR_RETURN(original, rope.integer("original_max_position_embeddings"));
  }
  const bool has_original =
      r.scaling != RopeScaling::linear && r.scaling != RopeScaling::dynamic_ntk;
  r.original_max_positions = has_original ? original.value_or(declared) : declared;
  MR_ASSIGN_OR_RETURN(const auto factor, rope.number("factor"));
  const bool derives_factor = r.scaling == RopeScaling::yarn || r.scaling == RopeScaling::longrope;
  if (!factor && !derives_factor) return rope.error("factor", "is missing");
  r.factor = factor.value_or(static_cast<double>(declared) /
                             static_cast<double>(std::max<int64_t>(1, r.original_max_positions)));
  for (const auto& [name, field] :
       {std::pair{"low_freq_factor", &r.low_freq_factor},
        std::pair{"high_freq_factor", &r.high_freq_factor}, std::pair{"beta_fast", &r.beta_fast},
        std::pair{"beta_slow", &r.beta_slow}, std::pair{"attention_factor", &r.attention_factor},
        std::pair{"mscale", &r.mscale}, std::pair{"mscale_all_dim", &r.mscale_all_dim}}) {
    MR_RETURN_IF_ERROR(read_number(rope, name, *field));
  }
  MR_ASSIGN_OR_RETURN(const auto truncate, rope.boolean("truncate"));
  r.truncate = truncate.value_or(true);
  MR_ASSIGN_OR_RETURN(r.short_factor, rope.numbers("short_factor"));
  MR_ASSIGN_OR_RETURN(r.long_factor, rope.numbers("long_factor"));
  return absl::OkStatus();
}

}  // namespace

StatusOr<RopeConfig> hf_rope_config(const JsonFields& config, int64_t head_dim,
                                    int64_t declared_positions) {
  RopeConfig r;
  double rotary_factor = 1.0;
  MR_RETURN_IF_ERROR(read_number(config, "rope_theta", r.theta));
  MR_RETURN_IF_ERROR(read_number(config, "partial_rotary_factor", rotary_factor));
  MR_ASSIGN_OR_RETURN(const nlohmann::json* parameters, find_parameters(config));
  if (parameters != nullptr) {
    const JsonFields rope(*parameters, config.source() + ": rope parameters");
    MR_RETURN_IF_ERROR(read_parameters(config, rope, declared_positions, r));
    MR_RETURN_IF_ERROR(read_number(rope, "partial_rotary_factor", rotary_factor));
  }
  if (!(rotary_factor > 0.0 && rotary_factor <= 1.0)) {
    return config.error("partial_rotary_factor", "must be above 0 and at most 1");
  }
  r.rotary_dim = static_cast<int64_t>(static_cast<double>(head_dim) * rotary_factor);
  return r;
}

}  // namespace millrace
