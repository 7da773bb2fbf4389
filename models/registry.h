// The table of model families: architecture string -> constructor.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"

namespace millrace {

bool is_supported_architecture(std::string_view architecture);
std::vector<std::string_view> supported_architectures();

// A model without weights, for sequences of at most `max_len` positions. `config.architecture` must
// be supported and must divide by tp.size (check_tensor_parallel).
std::unique_ptr<Model> make_model(const ModelConfig& config, const TensorParallel& tp,
                                  int64_t max_len);

// Empty if `size` ranks can share the model, else one sentence with the numbers.
std::string check_tensor_parallel(const ModelConfig& config, int size);

}  // namespace millrace
