// Shapes: T tokens of the step, H hidden, D head size, F inner size. Nothing here allocates or
// waits. heads_, kv_heads_ and ffn_ are this rank's share.
#include "models/llama.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

// Heads [first, first + count) of x [T, all heads * D] as [T, count, D].
Tensor heads_view(const Tensor& x, int64_t first, int64_t count, int64_t head_dim) {
  Tensor columns = x.columns(first * head_dim, count * head_dim);
  Tensor view(columns.data, x.dtype, {x.dim(0), count, head_dim});
  view.strides[0] = x.strides[0];
  return view;
}

}  // namespace

Llama::Llama(const ModelConfig& config, const TensorParallel& tp, int64_t max_len)
    : m_(config),
      tp_(tp),
      heads_(config.heads / tp.size),
      kv_heads_(std::max<int64_t>(1, config.kv_heads / tp.size)),
      ffn_(config.ffn / tp.size),
      vocab_split_(config.vocab % tp.size == 0 ? Split::columns : Split::none),
      rope_(make_rope_values(config.rope, config.max_positions, max_len)),
      layers_(static_cast<size_t>(config.layers)) {}

void Llama::bind(WeightBinder& b) {
  const int64_t q = m_.heads * m_.head_dim, kv = m_.kv_heads * m_.head_dim;
  b.linear({{"model.embed_tokens", m_.vocab}}, embed_, m_.hidden, vocab_split_, false);
  b.vector("model.norm.weight", norm_, m_.hidden);
  if (m_.tied_embeddings)
    b.share(lm_head_, embed_);
  else
    b.linear({{"lm_head", m_.vocab}}, lm_head_, m_.hidden, vocab_split_, false);

  for (int64_t i = 0; i < m_.layers; ++i) {
    Layer& w = layers_[static_cast<size_t>(i)];
    b.push("model.layers", i);
    b.vector("input_layernorm.weight", w.attn_norm, m_.hidden);
    b.vector("post_attention_layernorm.weight", w.mlp_norm, m_.hidden);
    if (m_.qk_norm) {
      b.vector("self_attn.q_norm.weight", w.q_norm, m_.head_dim);
      b.vector("self_attn.k_norm.weight", w.k_norm, m_.head_dim);
    }
    b.linear({{"self_attn.q_proj", q, m_.heads},
              {"self_attn.k_proj", kv, m_.kv_heads},
              {"self_attn.v_proj", kv, m_.kv_heads}},
             w.qkv, m_.hidden, Split::columns, m_.qkv_bias);
    b.linear({{"self_attn.o_proj", m_.hidden}}, w.o, q, Split::rows, m_.o_bias);
    b.linear({{"mlp.gate_proj", m_.ffn}, {"mlp.up_proj", m_.ffn}}, w.gate_up, m_.hidden,
             Split::columns, m_.mlp_bias);
    b.linear({{"mlp.down_proj", m_.hidden}}, w.down, m_.ffn, Split::rows, m_.mlp_bias);
    b.pop();
  }
}

RopeTable Llama::rope_table() const {
  const int64_t half = m_.rope.rotary_dim / 2;
  return {rope_.cos.data(), rope_.sin.data(), static_cast<int64_t>(rope_.cos.size()) / half,
          m_.rope.rotary_dim};
}

// One decoder layer. x [T,H] is the residual stream. delta [T,H] is the previous sub-layer's
// output, not yet added: folding the sum into the next norm saves one pass over memory.
// `next` is the weight of the linear that follows.
void Llama::block(const Ctx& c, const Step& s, const Layer& w, const LinearWeight& next,
                  const KvBinding& kv, Tensor x, Tensor delta) const {
  const int64_t T = x.dim(0), D = m_.head_dim;
  const Step::Group& group = s.groups[static_cast<size_t>(kv.group)];
  Scratch tmp(*c.arena);
  Tensor h = tmp({T, m_.hidden});

  add_rmsnorm(c, h, x, delta, w.attn_norm, m_.rms_eps);
  Tensor qkv = tmp({T, (heads_ + 2 * kv_heads_) * D});
  linear(c, qkv, h, w.qkv, &w.o);
  const Tensor q = heads_view(qkv, 0, heads_, D);
  const Tensor k = heads_view(qkv, heads_, kv_heads_, D);
  const Tensor v = heads_view(qkv, heads_ + kv_heads_, kv_heads_, D);
  if (m_.qk_norm) {
    head_rmsnorm(c, q, w.q_norm, m_.rms_eps);
    head_rmsnorm(c, k, w.k_norm, m_.rms_eps);
  }
  rope(c, q, k, s.positions, rope_table());
  kv_append(c, kv.layer, k, v, group.slots);
  Tensor o = tmp({T, heads_ * D});
  attention(c, heads_view(o, 0, heads_, D), q, kv.layer, group.sequences,
            1.0f / std::sqrt(static_cast<float>(D)));
  linear(c, delta, o, w.o, &w.gate_up);
  all_reduce(c, delta);

  add_rmsnorm(c, h, x, delta, w.mlp_norm, m_.rms_eps);
  Tensor gate_up = tmp({T, 2 * ffn_});
  Tensor act = tmp({T, ffn_});
  linear(c, gate_up, h, w.gate_up, &w.down);
  silu_mul(c, act, gate_up);
  linear(c, delta, act, w.down, &next);
  all_reduce(c, delta);
}

void Llama::forward(const Ctx& c, const Step& s, std::span<const KvBinding> kv,
                    Tensor hidden) const {
  const int64_t T = static_cast<int64_t>(s.tokens.size());
  Scratch tmp(*c.arena);
  Tensor x = tmp({T, m_.hidden}), delta = tmp({T, m_.hidden}), h = tmp({T, m_.hidden});
  embed(c, delta, s.tokens, embed_, vocab_split_ == Split::columns ? tp_.rank * embed_.n : 0);
  if (vocab_split_ == Split::columns) all_reduce(c, delta);
  // The first add_rmsnorm computes 0 + delta.
  zero(c, x);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const LinearWeight& next = i + 1 < layers_.size() ? layers_[i + 1].qkv : lm_head_;
    block(c, s, layers_[i], next, kv[i], x, delta);
  }

  add_rmsnorm(c, h, x, delta, norm_, m_.rms_eps);
  gather_rows(c, hidden, h, s.logit_rows);
}

void Llama::logits(const Ctx& c, Tensor logits, Tensor hidden) const {
  const LinearWeight* next = &layers_[0].qkv;  // of the next step
  if (tp_.size == 1 || vocab_split_ == Split::none)
    return linear(c, logits, hidden, lm_head_, next);
  Scratch tmp(*c.arena);
  Tensor share = tmp({hidden.dim(0), lm_head_.n});
  linear(c, share, hidden, lm_head_, next);
  all_gather_columns(c, logits, share);
}

}  // namespace millrace
