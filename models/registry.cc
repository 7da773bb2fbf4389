#include "models/registry.h"

#include "kernels/core/check.h"
#include "models/llama.h"

namespace millrace {
namespace {

using Make = std::unique_ptr<Model> (*)(const ModelConfig&, const TensorParallel&, int64_t);

template <class M>
std::unique_ptr<Model> make(const ModelConfig& config, const TensorParallel& tp, int64_t max_len) {
  return std::make_unique<M>(config, tp, max_len);
}

struct ModelEntry {
  std::string_view architecture;
  Make make;
};

constexpr ModelEntry kModels[] = {
    {"LlamaForCausalLM", make<Llama>},
    {"MistralForCausalLM", make<Llama>},
    {"Qwen2ForCausalLM", make<Llama>},
    {"Qwen3ForCausalLM", make<Llama>},
};

const ModelEntry* find_model(std::string_view architecture) {
  for (const ModelEntry& entry : kModels)
    if (entry.architecture == architecture) return &entry;
  return nullptr;
}

}  // namespace

bool is_supported_architecture(std::string_view architecture) {
  return find_model(architecture) != nullptr;
}

std::vector<std::string_view> supported_architectures() {
  std::vector<std::string_view> names;
  for (const ModelEntry& entry : kModels) names.push_back(entry.architecture);
  return names;
}

std::unique_ptr<Model> make_model(const ModelConfig& config, const TensorParallel& tp,
                                  int64_t max_len) {
  const ModelEntry* entry = find_model(config.architecture);
  MR_CHECK(entry != nullptr);
  return entry->make(config, tp, max_len);
}

std::string check_tensor_parallel(const ModelConfig& config, int size) {
  const auto fits = [&](int64_t n) { return n % size == 0; };
  const std::string ranks = std::to_string(size);
  if (size < 1) return "tensor-parallel size is " + ranks + ", it must be at least 1";
  if (!fits(config.heads))
    return std::to_string(config.heads) + " attention heads cannot be divided among " + ranks +
           " tensor-parallel ranks";
  if (!fits(config.kv_heads) && size % config.kv_heads != 0)
    return std::to_string(config.kv_heads) + " key/value heads can be neither divided among nor " +
           "evenly replicated on " + ranks + " tensor-parallel ranks";
  if (!fits(config.ffn))
    return "an inner size of " + std::to_string(config.ffn) + " cannot be divided among " + ranks +
           " tensor-parallel ranks";
  return "";
}

}  // namespace millrace
