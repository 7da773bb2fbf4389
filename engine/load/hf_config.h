// config.json and generation_config.json -> ModelConfig. Pure functions of the parsed files.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/base/status.h"
#include "models/config.h"

namespace millrace {

// `generation` may be an empty object. `source` and `generation_source` name the files in errors;
// `num_tensors` bounds the number of layers.
struct HfConfigFiles {
  const nlohmann::json& config;
  std::string source;
  const nlohmann::json& generation;
  std::string generation_source;
  int64_t num_tensors = 0;
};
StatusOr<ModelConfig> hf_model_config(const HfConfigFiles& files);

}  // namespace millrace
