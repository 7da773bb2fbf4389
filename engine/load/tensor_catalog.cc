#include "engine/load/tensor_catalog.h"

#include <utility>

namespace millrace {
namespace {

// Module names inside a layer, and outside; GGUF name second.
constexpr std::pair<std::string_view, std::string_view> kLayerNames[] = {
    {"input_layernorm", "attn_norm"},    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},      {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};
constexpr std::pair<std::string_view, std::string_view> kModelNames[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
};
constexpr std::string_view kLayerPrefix = "model.layers.";

// "model.layers.3.mlp.up_proj.weight" -> "blk.3.ffn_up.weight"; empty if GGUF has no such name.
std::string gguf_name(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return "";
  const std::string suffix(name.substr(dot));
  const std::string_view module = name.substr(0, dot);
  for (const auto& [ours, theirs] : kModelNames) {
    if (module == ours) return std::string(theirs) + suffix;
  }
  if (!module.starts_with(kLayerPrefix)) return "";
  const std::string_view rest = module.substr(kLayerPrefix.size());
  const size_t end = rest.find('.');
  if (end == std::string_view::npos) return "";
  for (const auto& [ours, theirs] : kLayerNames) {
    if (rest.substr(end + 1) == ours) {
      return "blk." + std::string(rest.substr(0, end)) + "." + std::string(theirs) + suffix;
    }
  }
  return "";
}

}  // namespace

StatusOr<TensorCatalog> TensorCatalog::make(std::vector<StoredTensor> tensors,
                                            std::vector<std::string> files, TensorNaming naming,
                                            bool interleaved_qk) {
  TensorCatalog catalog;
  catalog.tensors_ = std::move(tensors);
  catalog.files_ = std::move(files);
  catalog.naming_ = naming;
  catalog.interleaved_qk_ = interleaved_qk;
  for (size_t i = 0; i < catalog.tensors_.size(); ++i) {
    const StoredTensor& tensor = catalog.tensors_[i];
    const auto [it, added] = catalog.by_name_.emplace(tensor.name, i);
    if (!added) {
      return absl::InvalidArgumentError("Tensor \"" + tensor.name + "\" is both in " +
                                        catalog.file(catalog.tensors_[it->second]) + " and in " +
                                        catalog.file(tensor) + ".");
    }
  }
  return catalog;
}

std::string TensorCatalog::stored_name(std::string_view name) const {
  return naming_ == TensorNaming::gguf ? gguf_name(name) : std::string(name);
}

const StoredTensor* TensorCatalog::find(std::string_view name) const {
  const auto it = by_name_.find(stored_name(name));
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

bool TensorCatalog::is_redundant(const StoredTensor& tensor) const {
  const std::string_view name = tensor.name;
  if (naming_ == TensorNaming::gguf) {
    // Rotary factors are read with the configuration.
    return name.ends_with("rope_freqs.weight") || name.ends_with("attn_rot_embd.weight") ||
           name == "rope_factors_long.weight" || name == "rope_factors_short.weight";
  }
  return name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace millrace
