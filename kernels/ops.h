// Every op that models, the executor and the sampler may call: signature and one-line contract.
// Outputs come first; nothing allocates except from ctx.arena; nothing throws. Shapes are checked
// by name at the front door (a mismatch is our own mistake and aborts with the name).
//
// Shapes: T tokens (rows) in this step, H hidden, D head size. Activations are f32 on the CPU
// (the element type of weights and of the KV cache is a property of those).
//
// Batch invariance: an output row's bits depend only on that row's inputs, never on T, on the
// other rows, or on the number of threads.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/core/context.h"
#include "kernels/core/tensor.h"
#include "kernels/core/weight.h"

namespace millrace {

// ---- Embedding, norms, element-wise ---------------------------------------------------------

// out[t,:] = row tokens[t] of the table, a packed [vocab, H] weight (it may be the tied output
// head). A token outside [first_row, first_row + table.n) gives a zero row (vocabulary parallel).
void embed(const Ctx& c, Tensor out /*[T,H]*/, std::span<const int32_t> tokens,
           const LinearWeight& table, int64_t first_row = 0);

void zero(const Ctx& c, Tensor x);

// residual += delta; out = residual / sqrt(mean(residual^2) + eps) * weight.  weight [H] f32.
void add_rmsnorm(const Ctx& c, Tensor out /*[T,H]*/, Tensor residual /*[T,H]*/,
                 Tensor delta /*[T,H]*/, const float* weight, float eps);

// In place RMSNorm of each head of x [T, heads, D] with one weight [D].
void head_rmsnorm(const Ctx& c, Tensor x, const float* weight, float eps);

// out[t, i] = silu(gate_up[t, i]) * gate_up[t, F + i].  out [T,F], gate_up [T,2F].
void silu_mul(const Ctx& c, Tensor out, Tensor gate_up);

// out[r,:] = x[rows[r],:]
void gather_rows(const Ctx& c, Tensor out, Tensor x, std::span<const int32_t> rows);

// ---- Linear ---------------------------------------------------------------------------------

// out [T,n] = x [T,k] W^T + bias. bf16 weights multiply x rounded to bf16; the integer formats
// multiply x quantised to int8 per row and group of 32 (scale = max|x| / 127, round to nearest
// even), with exact integer dot products and f32 accumulation over groups in ascending order.
// `next`, if known: the weight of the linear that follows. A hint: each thread fetches the first of
// its share while it multiplies the last of this one.
void linear(const Ctx& c, Tensor out, Tensor x, const LinearWeight& w,
            const LinearWeight* next = nullptr);

// ---- Attention ------------------------------------------------------------------------------

// Rotary embedding, computed from a table of cosines and sines [positions, D_rot / 2] made at load
// (models/rope.h). Half-split pairs (i, i + D_rot / 2), applied to the first D_rot of each head.
struct RopeTable {
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t positions = 0;
  int64_t rotary_dim = 0;
};
void rope(const Ctx& c, Tensor q /*[T,heads,D]*/, Tensor k /*[T,kv_heads,D]*/,
          std::span<const int32_t> positions, const RopeTable& table);

// One layer's slice of a paged KV cache group. Block b of this layer begins at
// data + b * block_stride bytes: all K, then all V:
//   K bf16 [kv_heads][block_size/16][D/2][16][2]   f32 [kv_heads][block_size/16][D][16]
//   V bf16 [kv_heads][block_size/2][D][2]         f32 [kv_heads][block_size][D]
// K is stored token-minor so that the scores of 16 positions are one vector; bf16 comes in pairs
// along what is summed over (K: D, V: tokens), as VDPBF16PS takes it.
struct KvLayer {
  char* data = nullptr;
  int64_t block_stride = 0;
  DType dtype = DType::bf16;  // bf16 or f32
  int block_size = 16;        // tokens; a multiple of 16
  int kv_heads = 0;
  int head_dim = 0;
  int window = 0;  // sliding window in tokens, the current one included; 0: unlimited
};
constexpr int64_t kv_layer_block_bytes(DType type, int block_size, int kv_heads, int head_dim) {
  return int64_t{2} * block_size * kv_heads * head_dim * static_cast<int64_t>(dtype_bytes(type));
}

// Writes k, v [T, kv_heads, D] of token t to slot slots[t] = block * block_size + offset.
void kv_append(const Ctx& c, const KvLayer& kv, Tensor k, Tensor v, std::span<const int32_t> slots);

// One sequence's share of a step. Query rows [q_begin, q_begin + q_len) are the sequence's last
// q_len of kv_len positions; position p lives in block blocks[p / block_size]. With a window,
// entries that only hold positions before the window may be -1.
struct AttentionSequence {
  int32_t q_begin = 0;
  int32_t q_len = 0;
  int32_t kv_len = 0;
  const int32_t* blocks = nullptr;
};
// out [T, heads, D] = causal softmax(q k^T * scale) v over each sequence's own positions, K/V read
// back from the cache. Softmax states of chunks fixed at absolute positions (256 of them, in tiles
// of 16) are merged in ascending order. With bf16 KV the query is rounded to bf16 for the scores
// and, at the avx512 level, the probabilities for the values.
void attention(const Ctx& c, Tensor out, Tensor q, const KvLayer& kv,
               std::span<const AttentionSequence> sequences, float scale);

// ---- Communication (tensor parallel) --------------------------------------------------------

void all_reduce(const Ctx& c, Tensor x);  // sum over ranks, in rank order; no-op with one rank
// out [T, ranks * n] = concatenation of every rank's x [T, n] in rank order.
void all_gather_columns(const Ctx& c, Tensor out, Tensor x);

// ---- Sampling -------------------------------------------------------------------------------

inline constexpr int kMaxTopLogprobs = 20;

struct TokenLogprob {
  int32_t token;
  float logprob;
};

// How to choose the next token of one row. All spans outlive the call. Order of work: raw
// log-probabilities (for reporting) are taken from the untouched logits; then bans and bias,
// penalties, temperature, min_p, top_k, top_p, typical_p, draw.
struct SamplingRow {
  float temperature = 1.0f;  // 0: greedy
  float top_p = 1.0f;
  float min_p = 0.0f;
  float typical_p = 1.0f;
  int32_t top_k = 0;  // 0: off
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint64_t seed = 0;
  uint64_t position = 0;      // index of the drawn token in its sequence: the generator's counter
  int32_t num_logprobs = -1;  // -1: none; 0: chosen token only; k: chosen and the best k
  // Distinct tokens seen: [0, prompt_only) only in the prompt, the rest with output counts.
  std::span<const int32_t> seen_tokens;
  std::span<const int32_t> seen_output_counts;  // parallel; 0 = occurs in the prompt only
  std::span<const TokenLogprob> logit_bias;     // added to the logit
  std::span<const int32_t> banned_tokens;       // logit = -inf (min_tokens, bad words)
  std::span<const int32_t> allowed_tokens;      // if not empty: everything else is -inf
};
struct SampledToken {
  int32_t token = -1;  // -1: the row's logits hold a NaN, or nothing is allowed
  float logprob = 0.0f;
  int32_t num_top = 0;
  TokenLogprob top[kMaxTopLogprobs];  // best first
};
// logits [R, V]: row r decides sampled[r]; overwritten as scratch. `invalid_tokens` (sorted; holes
// and padding rows of the vocabulary) are never chosen nor reported.
void sample(const Ctx& c, std::span<SampledToken> sampled, Tensor logits,
            std::span<const SamplingRow> rows, std::span<const int32_t> invalid_tokens);

// scores[r] = log-probability of targets[r] under raw logits row r, with the best k (<= 20) in top.
void score_tokens(const Ctx& c, std::span<SampledToken> scores, Tensor logits,
                  std::span<const int32_t> targets, int num_top,
                  std::span<const int32_t> invalid_tokens);

}  // namespace millrace
