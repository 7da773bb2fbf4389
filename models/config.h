// ModelConfig: what a decoder-only checkpoint declares about its model, made once by engine/load
// from config.json or GGUF metadata and never changed. Sizes are those of the whole model;
// TensorParallel says which share a rank has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

enum class RopeScaling : uint8_t { none, linear, dynamic_ntk, llama3, yarn, longrope };

// Field names and meanings follow Hugging Face's rope_scaling / rope_parameters.
struct RopeConfig {
  RopeScaling scaling = RopeScaling::none;
  double theta = 10000.0;
  int64_t rotary_dim = 0;  // D * partial_rotary_factor
  double factor = 1.0;
  int64_t original_max_positions = 0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;               // llama3
  double beta_fast = 32.0, beta_slow = 1.0;                           // yarn
  double attention_factor = 0.0, mscale = 0.0, mscale_all_dim = 0.0;  // 0: not given
  bool truncate = true;                           // yarn: round the correction range
  std::vector<double> short_factor, long_factor;  // longrope
};

struct ModelConfig {
  std::string architecture;  // as in config.json, e.g. "LlamaForCausalLM"
  int64_t vocab = 0;         // rows of the embedding
  int64_t hidden = 0;
  int64_t ffn = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  float rms_eps = 1e-5f;
  bool qk_norm = false;   // Qwen3
  bool qkv_bias = false;  // Qwen2, attention_bias
  bool o_bias = false;    // attention_bias of Llama
  bool mlp_bias = false;
  bool tied_embeddings = false;
  std::vector<int> window;  // [layers] sliding window in tokens, 0: full attention
  RopeConfig rope;
  int64_t max_positions = 0;  // context the checkpoint was made for, scaling included
  std::string dtype;          // of the checkpoint: "float32", "bfloat16", "float16"

  std::vector<int32_t> eos_tokens;  // generation_config over config; any of them ends a text
  int32_t bos_token = -1;
};

struct TensorParallel {
  int rank = 0;
  int size = 1;
};

}  // namespace millrace
