// The Llama family of decoders: Llama 2/3, Mistral, SmolLM2, Qwen2 and Qwen3 are this class plus a
// config (QKV bias, QK norm, tied embeddings, sliding windows, RoPE scaling are data).
#pragma once

#include <vector>

#include "models/model.h"
#include "models/rope.h"

namespace millrace {

class Llama final : public Model {
 public:
  Llama(const ModelConfig& config, const TensorParallel& tp, int64_t max_len);

  void bind(WeightBinder& binder) override;
  void forward(const Ctx& c, const Step& step, std::span<const KvBinding> kv,
               Tensor hidden) const override;
  void logits(const Ctx& c, Tensor logits, Tensor hidden) const override;

 private:
  struct Layer {
    const float* attn_norm = nullptr;  // [H]
    const float* mlp_norm = nullptr;   // [H]
    const float* q_norm = nullptr;     // [D], Qwen3
    const float* k_norm = nullptr;     // [D]
    LinearWeight qkv;                  // [(heads + 2 kv_heads) D, H]
    LinearWeight o;                    // [H, heads D]
    LinearWeight gate_up;              // [2 F, H]
    LinearWeight down;                 // [H, F]
  };

  void block(const Ctx& c, const Step& step, const Layer& w, const LinearWeight& next,
             const KvBinding& kv, Tensor x, Tensor delta) const;
  RopeTable rope_table() const;

  const ModelConfig m_;
  const TensorParallel tp_;
  const int64_t heads_, kv_heads_, ffn_;  // this rank's share
  const Split vocab_split_;
  const RopeValues rope_;
  LinearWeight embed_, lm_head_;  // [vocab share, H]
  const float* norm_ = nullptr;   // [H]
  std::vector<Layer> layers_;
};

}  // namespace millrace
