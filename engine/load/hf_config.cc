#include "engine/load/hf_config.h"

#include <algorithm>
#include <limits>

#include "engine/load/config_check.h"
#include "engine/load/hf_rope.h"
#include "engine/load/json_fields.h"

namespace millrace {
namespace {

// What the reference implementation of each family assumes for fields that are absent.
struct FamilyDefaults {
  std::string_view architecture;
  std::string_view model_type;
  double rms_eps;
  bool qkv_bias;        // always, whatever attention_bias says
  bool attention_bias;  // the attention_bias field is honoured
  bool mlp_bias;        // the mlp_bias field is honoured
  bool qk_norm;
  bool window_everywhere;  // sliding_window applies to every layer (Mistral)
  bool window_by_layer;    // use_sliding_window, max_window_layers, layer_types (Qwen)
};
constexpr FamilyDefaults kFamilies[] = {
    {"LlamaForCausalLM", "llama", 1e-6, false, true, true, false, false, false},
    {"MistralForCausalLM", "mistral", 1e-6, false, false, false, false, true, false},
    {"Qwen2ForCausalLM", "qwen2", 1e-6, true, false, false, false, false, true},
    {"Qwen3ForCausalLM", "qwen3", 1e-6, false, true, false, true, false, true},
};
constexpr int64_t kDefaultWindow = 4096;
constexpr int64_t kDefaultMaxWindowLayers = 28;
constexpr int64_t kMaxEndTokens = 1024;

StatusOr<FamilyDefaults> find_family(const JsonFields& fields) {
  MR_ASSIGN_OR_RETURN(const auto architectures, fields.strings("architectures"));
  MR_ASSIGN_OR_RETURN(const auto model_type, fields.string("model_type"));
  const bool by_type = architectures.empty();
  const std::string declared = by_type ? model_type.value_or("") : architectures[0];
  if (declared.empty()) return fields.error("architectures", "is missing");
  std::string supported;
  for (const FamilyDefaults& family : kFamilies) {
    if (declared == (by_type ? family.model_type : family.architecture)) return family;
    supported += (supported.empty() ? "" : ", ") + std::string(family.architecture);
  }
  return absl::InvalidArgumentError(fields.source() + ": architecture \"" + declared +
                                    "\" is not supported; " + supported + " are.");
}

Status read_sizes(const JsonFields& f, ModelConfig& c) {
  MR_ASSIGN_OR_RETURN(c.vocab, f.required_integer("vocab_size"));
  MR_ASSIGN_OR_RETURN(c.hidden, f.required_integer("hidden_size"));
  MR_ASSIGN_OR_RETURN(c.ffn, f.required_integer("intermediate_size"));
  MR_ASSIGN_OR_RETURN(c.layers, f.required_integer("num_hidden_layers"));
  MR_ASSIGN_OR_RETURN(c.heads, f.required_integer("num_attention_heads"));
  MR_ASSIGN_OR_RETURN(const auto kv_heads, f.integer("num_key_value_heads"));
  c.kv_heads = kv_heads.value_or(c.heads);
  MR_ASSIGN_OR_RETURN(const auto head_dim, f.integer("head_dim"));
  c.head_dim = head_dim.value_or(c.heads > 0 ? c.hidden / c.heads : 0);
  return absl::OkStatus();
}

Status read_flags(const JsonFields& f, const FamilyDefaults& family, ModelConfig& c) {
  MR_ASSIGN_OR_RETURN(const auto eps, f.number("rms_norm_eps"));
  c.rms_eps = static_cast<float>(eps.value_or(family.rms_eps));
  MR_ASSIGN_OR_RETURN(const auto attention_bias, f.boolean("attention_bias"));
  MR_ASSIGN_OR_RETURN(const auto mlp_bias, f.boolean("mlp_bias"));
  MR_ASSIGN_OR_RETURN(const auto tied, f.boolean("tie_word_embeddings"));
  c.o_bias = family.attention_bias && attention_bias.value_or(false);
  c.qkv_bias = family.qkv_bias || c.o_bias;
  c.mlp_bias = family.mlp_bias && mlp_bias.value_or(false);
  c.qk_norm = family.qk_norm;
  c.tied_embeddings = tied.value_or(false);
  MR_ASSIGN_OR_RETURN(const auto activation, f.string("hidden_act"));
  if (activation && *activation != "silu") {
    return f.error("hidden_act", "is \"" + *activation + "\"; silu is supported");
  }
  if (f.find("quantization_config") != nullptr) {
    return f.error("quantization_config",
                   "declares quantised safetensors, which are not supported; F32, F16 and BF16 "
                   "weights are");
  }
  MR_ASSIGN_OR_RETURN(auto dtype, f.string("dtype"));
  if (!dtype) {
    MR_ASSIGN_OR_RETURN(dtype, f.string("torch_dtype"));
  }
  c.dtype = dtype.value_or("float32");
  return absl::OkStatus();
}

// The window of each layer; sizes are already bounded.
Status read_windows(const JsonFields& f, const FamilyDefaults& family, ModelConfig& c) {
  c.window.assign(static_cast<size_t>(c.layers), 0);
  if (!family.window_everywhere && !family.window_by_layer) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const auto declared, f.integer("sliding_window"));
  MR_ASSIGN_OR_RETURN(const auto use, f.boolean("use_sliding_window"));
  // An explicit null means none; absence means the family's default.
  int64_t window = declared.value_or(f.is_present("sliding_window") ? 0 : kDefaultWindow);
  if (family.window_by_layer && !use.value_or(false)) window = 0;
  if (window < 0 || window > std::numeric_limits<int>::max()) {
    return f.error("sliding_window", "must be a positive number of tokens");
  }
  if (family.window_everywhere) {
    c.window.assign(static_cast<size_t>(c.layers), static_cast<int>(window));
    return absl::OkStatus();
  }
  MR_ASSIGN_OR_RETURN(const auto first, f.integer("max_window_layers"));
  MR_ASSIGN_OR_RETURN(const auto types, f.strings("layer_types"));
  if (!types.empty() && static_cast<int64_t>(types.size()) != c.layers) {
    return f.error("layer_types", "has " + std::to_string(types.size()) + " entries for " +
                                      std::to_string(c.layers) + " layers");
  }
  for (int64_t i = 0; i < c.layers; ++i) {
    bool sliding = i >= first.value_or(kDefaultMaxWindowLayers);
    if (!types.empty()) {
      const std::string& type = types[static_cast<size_t>(i)];
      sliding = type == "sliding_attention";
      if (!sliding && type != "full_attention") {
        return f.error("layer_types", "holds \"" + type +
                                          "\"; full_attention and sliding_attention are supported");
      }
    }
    if (sliding) c.window[static_cast<size_t>(i)] = static_cast<int>(window);
  }
  return absl::OkStatus();
}

// A token id or a list of them.
StatusOr<std::vector<int32_t>> token_ids(const JsonFields& f, const char* name) {
  std::vector<int32_t> ids;
  const nlohmann::json* value = f.find(name);
  if (value == nullptr) return ids;
  const nlohmann::json one = nlohmann::json::array({*value});
  const nlohmann::json& list = value->is_array() ? *value : one;
  if (list.size() > static_cast<size_t>(kMaxEndTokens)) return f.error(name, "is too long");
  for (const nlohmann::json& entry : list) {
    const bool valid = entry.is_number_integer() && entry.get<int64_t>() >= 0 &&
                       entry.get<int64_t>() <= std::numeric_limits<int32_t>::max();
    if (!valid) return f.error(name, "must be a token id or a list of them");
    ids.push_back(entry.get<int32_t>());
  }
  return ids;
}

}  // namespace

StatusOr<ModelConfig> hf_model_config(const HfConfigFiles& files) {
  const JsonFields f(files.config, files.source);
  const JsonFields generation(files.generation, files.generation_source);
  MR_ASSIGN_OR_RETURN(const FamilyDefaults family, find_family(f));
  ModelConfig c;
  c.architecture = std::string(family.architecture);
  MR_RETURN_IF_ERROR(read_sizes(f, c));
  MR_RETURN_IF_ERROR(read_flags(f, family, c));
  MR_ASSIGN_OR_RETURN(const int64_t declared, f.required_integer("max_position_embeddings"));
  MR_ASSIGN_OR_RETURN(c.rope, hf_rope_config(f, c.head_dim, declared));
  c.max_positions = scaled_max_positions(c.rope, declared);
  MR_ASSIGN_OR_RETURN(c.eos_tokens, token_ids(generation, "eos_token_id"));
  if (c.eos_tokens.empty()) {
    MR_ASSIGN_OR_RETURN(c.eos_tokens, token_ids(f, "eos_token_id"));
  }
  // Checkpoints exist whose end-of-text id was never part of the vocabulary: it cannot occur.
  std::erase_if(c.eos_tokens, [&](int32_t id) { return id >= c.vocab; });
  MR_ASSIGN_OR_RETURN(const std::vector<int32_t> bos, token_ids(f, "bos_token_id"));
  if (!bos.empty() && bos[0] < c.vocab) c.bos_token = bos[0];
  MR_RETURN_IF_ERROR(check_config(c, files.source, files.num_tensors));
  MR_RETURN_IF_ERROR(read_windows(f, family, c));
  return c;
}

}  // namespace millrace
