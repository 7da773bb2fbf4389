// The rotary settings of a config.json: rope_parameters (newer) or rope_theta with rope_scaling.
#pragma once

#include "engine/base/status.h"
#include "engine/load/json_fields.h"
#include "models/config.h"

namespace millrace {

// `declared_positions` is max_position_embeddings.
StatusOr<RopeConfig> hf_rope_config(const JsonFields& config, int64_t head_dim,
                                    int64_t declared_positions);

}  // namespace millrace
