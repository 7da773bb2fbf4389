// GGUF metadata -> ModelConfig, vocabulary and chat template. Pure functions of a parsed file.
#pragma once

#include <string>

#include "engine/base/status.h"
#include "engine/load/gguf.h"
#include "engine/load/tensor_catalog.h"
#include "engine/text/tokenizer.h"
#include "models/config.h"

namespace millrace {

// llama.cpp's "llama" architecture stores Q and K permuted for rotary pairs (2i, 2i + 1).
bool gguf_interleaves_qk(const GgufFile& file);

StatusOr<ModelConfig> gguf_model_config(const GgufFile& file, const TensorCatalog& catalog);

StatusOr<GgufVocabulary> gguf_vocabulary(const GgufFile& file);

}  // namespace millrace
