// Rotary settings of a GGUF file: its rope.* keys, and the factor tensors that stand for llama3 and
// longrope scaling.
#pragma once

#include <string_view>

#include "engine/base/status.h"
#include "engine/load/gguf.h"
#include "engine/load/tensor_catalog.h"
#include "models/config.h"

namespace millrace {

// `config` has its sizes and declared max_positions.
StatusOr<RopeConfig> gguf_rope_config(const GgufFile& file, const TensorCatalog& catalog,
                                      std::string_view architecture, const ModelConfig& config);

// True if `factors` [rotary_dim / 2], which divide the inverse frequencies, are those of llama3
// scaling with some parameters; they are then set in `rope`.
bool recognise_llama3_factors(const std::vector<float>& factors, int64_t original_max_positions,
                              RopeConfig& rope);

}  // namespace millrace
