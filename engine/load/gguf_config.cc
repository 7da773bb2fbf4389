#include "engine/load/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/load/config_check.h"
#include "engine/load/gguf_rope.h"

namespace millrace {
namespace {

struct Architecture {
  std::string_view gguf;
  const char* hugging_face;
  bool interleaved_qk;
  bool qk_norm;
};
constexpr Architecture kArchitectures[] = {
    {"llama", "LlamaForCausalLM", true, false},
    {"qwen2", "Qwen2ForCausalLM", false, false},
    {"qwen3", "Qwen3ForCausalLM", false, true},
};

StatusOr<Architecture> find_architecture(const GgufFile& file) {
  MR_ASSIGN_OR_RETURN(const auto name, file.string("general.architecture"));
  if (!name) {
    return absl::InvalidArgumentError(file.name() + ": key \"general.architecture\" is missing.");
  }
  for (const Architecture& a : kArchitectures) {
    if (a.gguf == *name) return a;
  }
  return absl::InvalidArgumentError(file.name() + ": architecture \"" + std::string(*name) +
                                    "\" is not supported; llama, qwen2 and qwen3 are.");
}

// Reads keys below "<architecture>.".
class Keys {
 public:
  Keys(const GgufFile& file, std::string_view prefix)
      : file_(file), prefix_(std::string(prefix) + ".") {}
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  StatusOr<int64_t> required(std::string_view key) const {
    MR_ASSIGN_OR_RETURN(const auto value, file_.integer(full(key)));
    if (!value) {
      return absl::InvalidArgumentError(file_.name() + ": key \"" + full(key) + "\" is missing.");
    }
    return *value;
  }
  StatusOr<int64_t> integer(std::string_view key, int64_t otherwise) const {
    MR_ASSIGN_OR_RETURN(const auto value, file_.integer(full(key)));
    return value.value_or(otherwise);
  }
  StatusOr<double> number(std::string_view key, double otherwise) const {
    MR_ASSIGN_OR_RETURN(const auto value, file_.number(full(key)));
    return value.value_or(otherwise);
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

Status read_sizes(const Keys& keys, const TensorCatalog& catalog, const GgufFile& file,
                  ModelConfig& c) {
  MR_ASSIGN_OR_RETURN(c.layers, keys.required("block_count"));
  MR_ASSIGN_OR_RETURN(c.hidden, keys.required("embedding_length"));
  MR_ASSIGN_OR_RETURN(c.ffn, keys.required("feed_forward_length"));
  MR_ASSIGN_OR_RETURN(c.heads, keys.required("attention.head_count"));
  MR_ASSIGN_OR_RETURN(c.kv_heads, keys.integer("attention.head_count_kv", c.heads));
  MR_ASSIGN_OR_RETURN(c.head_dim,
                      keys.integer("attention.key_length", c.heads > 0 ? c.hidden / c.heads : 0));
  MR_ASSIGN_OR_RETURN(const int64_t value_dim, keys.integer("attention.value_length", c.head_dim));
  if (value_dim != c.head_dim) {
    return absl::InvalidArgumentError(file.name() + ": keys of " + std::to_string(c.head_dim) +
                                      " and values of " + std::to_string(value_dim) +
                                      " elements a head are not supported; they must be equal.");
  }
  MR_ASSIGN_OR_RETURN(const int64_t experts, keys.integer("expert_count", 0));
  if (experts > 0) {
    return absl::InvalidArgumentError(file.name() + ": key \"" + keys.full("expert_count") +
                                      "\" declares a mixture of experts, which is not supported.");
  }
  const StoredTensor* embedding = catalog.find("model.embed_tokens.weight");
  if (embedding == nullptr) {
    return absl::InvalidArgumentError(file.name() + ": tensor \"token_embd.weight\" is missing.");
  }
  c.vocab = embedding->rows();
  c.dtype = "float32";
  if (const StoredTensor* q = catalog.find("model.layers.0.self_attn.q_proj.weight")) {
    if (q->type == StoredType::bf16) c.dtype = "bfloat16";
    if (q->type != StoredType::bf16 && q->type != StoredType::f32) c.dtype = "float16";
  }
  return absl::OkStatus();
}

StatusOr<int32_t> token_id(const GgufFile& file, std::string_view key, int64_t vocab) {
  MR_ASSIGN_OR_RETURN(const auto id, file.integer(key));
  if (!id) return int32_t{-1};
  if (*id < 0 || *id >= vocab) {
    return absl::InvalidArgumentError(file.name() + ": key \"" + std::string(key) + "\" is " +
                                      std::to_string(*id) + ", outside the vocabulary of " +
                                      std::to_string(vocab) + ".");
  }
  return static_cast<int32_t>(*id);
}

Status read_end_tokens(const GgufFile& file, ModelConfig& c) {
  MR_ASSIGN_OR_RETURN(c.bos_token, token_id(file, "tokenizer.ggml.bos_token_id", c.vocab));
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    MR_ASSIGN_OR_RETURN(const int32_t id, token_id(file, key, c.vocab));
    if (id >= 0 && std::find(c.eos_tokens.begin(), c.eos_tokens.end(), id) == c.eos_tokens.end()) {
      c.eos_tokens.push_back(id);
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool gguf_interleaves_qk(const GgufFile& file) {
  const StatusOr<Architecture> architecture = find_architecture(file);
  return architecture.ok() && architecture->interleaved_qk;
}

StatusOr<ModelConfig> gguf_model_config(const GgufFile& file, const TensorCatalog& catalog) {
  MR_ASSIGN_OR_RETURN(const Architecture architecture, find_architecture(file));
  const Keys keys(file, architecture.gguf);
  ModelConfig c;
  c.architecture = architecture.hugging_face;
  MR_RETURN_IF_ERROR(read_sizes(keys, catalog, file, c));
  MR_ASSIGN_OR_RETURN(const double eps, keys.number("attention.layer_norm_rms_epsilon", 1e-5));
  c.rms_eps = static_cast<float>(eps);
  c.qk_norm = architecture.qk_norm;
  // Biases and tying are declared by the presence of their tensors alone.
  c.qkv_bias = catalog.find("model.layers.0.self_attn.q_proj.bias") != nullptr;
  c.o_bias = catalog.find("model.layers.0.self_attn.o_proj.bias") != nullptr;
  c.mlp_bias = catalog.find("model.layers.0.mlp.gate_proj.bias") != nullptr;
  c.tied_embeddings = catalog.find("lm_head.weight") == nullptr;

  MR_ASSIGN_OR_RETURN(const int64_t positions, keys.required("context_length"));
  c.max_positions = positions;
  MR_ASSIGN_OR_RETURN(c.rope, gguf_rope_config(file, catalog, architecture.gguf, c));
  c.max_positions = scaled_max_positions(c.rope, positions);
  MR_ASSIGN_OR_RETURN(const int64_t window, keys.integer("attention.sliding_window", 0));
  if (window < 0 || window > std::numeric_limits<int>::max()) {
    return absl::InvalidArgumentError(file.name() + ": key \"" +
                                      keys.full("attention.sliding_window") + "\" is " +
                                      std::to_string(window) + ", which is not a window size.");
  }
  MR_RETURN_IF_ERROR(read_end_tokens(file, c));
  MR_RETURN_IF_ERROR(check_config(c, file.name(), static_cast<int64_t>(catalog.tensors().size())));
  c.window.assign(static_cast<size_t>(c.layers), static_cast<int>(window));
  return c;
}

StatusOr<GgufVocabulary> gguf_vocabulary(const GgufFile& file) {
  GgufVocabulary v;
  MR_ASSIGN_OR_RETURN(const auto model, file.string("tokenizer.ggml.model"));
  if (!model) {
    return absl::InvalidArgumentError(file.name() +
                                      ": key \"tokenizer.ggml.model\" is missing: the file has no "
                                      "tokenizer.");
  }
  v.model = std::string(*model);
  MR_ASSIGN_OR_RETURN(const auto pre, file.string("tokenizer.ggml.pre"));
  v.pre = std::string(pre.value_or(""));
  MR_ASSIGN_OR_RETURN(const auto tokens, file.strings("tokenizer.ggml.tokens"));
  v.tokens.assign(tokens.begin(), tokens.end());
  MR_ASSIGN_OR_RETURN(const auto merges, file.strings("tokenizer.ggml.merges"));
  v.merges.assign(merges.begin(), merges.end());
  MR_ASSIGN_OR_RETURN(v.scores, file.floats("tokenizer.ggml.scores"));
  MR_ASSIGN_OR_RETURN(const auto types, file.integers("tokenizer.ggml.token_type"));
  for (const int64_t type : types) v.types.push_back(static_cast<int32_t>(type));
  const std::pair<const char*, size_t> parallel[] = {{"scores", v.scores.size()},
                                                     {"token_type", v.types.size()}};
  for (const auto& [name, size] : parallel) {
    if (size != 0 && size != v.tokens.size()) {
      return absl::InvalidArgumentError(
          file.name() + ": key \"tokenizer.ggml." + name + "\" has " + std::to_string(size) +
          " entries where the vocabulary has " + std::to_string(v.tokens.size()) + ".");
    }
  }
  const std::pair<const char*, int64_t*> ids[] = {{"tokenizer.ggml.bos_token_id", &v.bos},
                                                  {"tokenizer.ggml.eos_token_id", &v.eos},
                                                  {"tokenizer.ggml.unknown_token_id", &v.unk},
                                                  {"tokenizer.ggml.eot_token_id", &v.eot}};
  for (const auto& [key, id] : ids) {
    MR_ASSIGN_OR_RETURN(*id, token_id(file, key, static_cast<int64_t>(v.tokens.size())));
  }
  MR_ASSIGN_OR_RETURN(v.add_bos, file.boolean("tokenizer.ggml.add_bos_token"));
  MR_ASSIGN_OR_RETURN(v.add_eos, file.boolean("tokenizer.ggml.add_eos_token"));
  MR_ASSIGN_OR_RETURN(v.add_space_prefix, file.boolean("tokenizer.ggml.add_space_prefix"));
  MR_ASSIGN_OR_RETURN(const auto trims, file.boolean("tokenizer.ggml.remove_extra_whitespaces"));
  v.remove_extra_whitespaces = trims.value_or(false);
  return v;
}

}  // namespace millrace
