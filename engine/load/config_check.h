// What every ModelConfig must satisfy, whichever format it came from.
#pragma once

#include <string>

#include "engine/base/status.h"
#include "models/config.h"

namespace millrace {

// INVALID_ARGUMENT with one sentence that names `source` (a file) and the field. `num_tensors`
// bounds the layer count: a layer without tensors cannot be real.
Status check_config(const ModelConfig& config, const std::string& source, int64_t num_tensors);

// The context a checkpoint was made for, given what it declares as its positions: linear, dynamic
// and yarn scaling extend it, llama3 and longrope declare the extended length already.
int64_t scaled_max_positions(const RopeConfig& rope, int64_t declared);

}  // namespace millrace
