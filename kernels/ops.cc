// Check -> pack parameters -> choose device. The only file that knows there is more than one.
#include "kernels/ops.h"

#include "kernels/comm/comm.h"
#include "kernels/core/shape_check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "kernels/params.h"

namespace millrace {
namespace {

constexpr DType kF32 = DType::f32;

// Heads of one row must be contiguous: [T, heads, D] with any row stride.
void expect_heads_contiguous(const char* name, const Tensor& t) {
  if (t.strides[1] != t.dim(2) || t.strides[2] != 1) {
    std::fprintf(stderr, "%s: heads of a row are not contiguous\n", name);
    std::abort();
  }
}

}  // namespace

#define MR_DISPATCH(op, params) \
  (c.device == Device::cuda ? cuda::op(c, params) : cpu::op(c, params))

void embed(const Ctx& c, Tensor out, std::span<const int32_t> tokens, const LinearWeight& table,
           int64_t first_row) {
  Size rows{"tokens"}, hidden{"hidden", table.k};
  expect("embed.out", out, kF32, {rows, hidden});
  expect_size("embed.tokens", static_cast<int64_t>(tokens.size()), rows);
  if (rows.value == 0) return;
  const EmbedParams p{out.row<float>(0), out.strides[0], tokens, &table, first_row};
  MR_DISPATCH(embed, p);
}

void zero(const Ctx& c, Tensor x) {
  MR_CHECK(x.contiguous() && x.dtype == kF32);
  const ZeroParams p{static_cast<float*>(x.data), x.elements()};
  MR_DISPATCH(zero, p);
}

void add_rmsnorm(const Ctx& c, Tensor out, Tensor residual, Tensor delta, const float* weight,
                 float eps) {
  Size rows{"rows"}, cols{"cols"};
  expect("add_rmsnorm.out", out, kF32, {rows, cols});
  expect("add_rmsnorm.residual", residual, kF32, {rows, cols});
  expect("add_rmsnorm.delta", delta, kF32, {rows, cols});
  if (rows.value == 0) return;
  const AddRmsNormParams p{
      out.row<float>(0), residual.row<float>(0), delta.row<float>(0), rows.value, cols.value,
      out.strides[0],    residual.strides[0],    delta.strides[0],    weight,     eps};
  MR_DISPATCH(add_rmsnorm, p);
}

void head_rmsnorm(const Ctx& c, Tensor x, const float* weight, float eps) {
  Size rows{"rows"}, heads{"heads"}, head_dim{"head_dim"};
  expect("head_rmsnorm.x", x, kF32, {rows, heads, head_dim});
  expect_heads_contiguous("head_rmsnorm.x", x);
  if (rows.value == 0) return;
  const HeadRmsNormParams p{x.row<float>(0), rows.value, heads.value, head_dim.value,
                            x.strides[0],    weight,     eps};
  MR_DISPATCH(head_rmsnorm, p);
}

void silu_mul(const Ctx& c, Tensor out, Tensor gate_up) {
  Size rows{"rows"}, cols{"cols"};
  expect("silu_mul.out", out, kF32, {rows, cols});
  expect("silu_mul.gate_up", gate_up, kF32, {rows, 2 * cols.value});
  if (rows.value == 0) return;
  const SiluMulParams p{out.row<float>(0), gate_up.row<float>(0), rows.value,
                        cols.value,        out.strides[0],        gate_up.strides[0]};
  MR_DISPATCH(silu_mul, p);
}

void gather_rows(const Ctx& c, Tensor out, Tensor x, std::span<const int32_t> rows) {
  Size count{"rows"}, all{"x rows"}, cols{"cols"};
  expect("gather_rows.out", out, kF32, {count, cols});
  expect("gather_rows.x", x, kF32, {all, cols});
  expect_size("gather_rows.rows", static_cast<int64_t>(rows.size()), count);
  if (count.value == 0) return;
  const GatherRowsParams p{out.row<float>(0), x.row<float>(0), cols.value,
                           out.strides[0],    x.strides[0],    rows};
  MR_DISPATCH(gather_rows, p);
}

void linear(const Ctx& c, Tensor out, Tensor x, const LinearWeight& w, const LinearWeight* next) {
  Size rows{"rows"}, n{"n", w.n}, k{"k", w.k};
  expect("linear.out", out, kF32, {rows, n});
  expect("linear.x", x, kF32, {rows, k});
  if (rows.value == 0) return;
  const LinearParams p{out.row<float>(0), x.row<float>(0), rows.value,
                       out.strides[0],    x.strides[0],    w,
                       next};
  MR_DISPATCH(linear, p);
}

void rope(const Ctx& c, Tensor q, Tensor k, std::span<const int32_t> positions,
          const RopeTable& table) {
  Size rows{"rows"}, heads{"heads"}, kv_heads{"kv_heads"}, head_dim{"head_dim"};
  expect("rope.q", q, kF32, {rows, heads, head_dim});
  expect("rope.k", k, kF32, {rows, kv_heads, head_dim});
  expect_heads_contiguous("rope.q", q);
  expect_heads_contiguous("rope.k", k);
  expect_size("rope.positions", static_cast<int64_t>(positions.size()), rows);
  MR_CHECK_OP(table.rotary_dim, <=, head_dim.value);
  if (rows.value == 0) return;
  const RopeParams p{q.row<float>(0), k.row<float>(0), rows.value,   heads.value, kv_heads.value,
                     head_dim.value,  q.strides[0],    k.strides[0], positions,   table};
  MR_DISPATCH(rope, p);
}

void kv_append(const Ctx& c, const KvLayer& kv, Tensor k, Tensor v,
               std::span<const int32_t> slots) {
  Size rows{"rows"}, kv_heads{"kv_heads", kv.kv_heads}, head_dim{"head_dim", kv.head_dim};
  expect("kv_append.k", k, kF32, {rows, kv_heads, head_dim});
  expect("kv_append.v", v, kF32, {rows, kv_heads, head_dim});
  expect_heads_contiguous("kv_append.k", k);
  expect_heads_contiguous("kv_append.v", v);
  expect_size("kv_append.slots", static_cast<int64_t>(slots.size()), rows);
  if (rows.value == 0) return;
  const KvAppendParams p{
      kv, k.row<float>(0), v.row<float>(0), rows.value, k.strides[0], v.strides[0], slots};
  MR_DISPATCH(kv_append, p);
}

void attention(const Ctx& c, Tensor out, Tensor q, const KvLayer& kv,
               std::span<const AttentionSequence> sequences, float scale) {
  Size rows{"rows"}, heads{"heads"}, head_dim{"head_dim", kv.head_dim};
  expect("attention.q", q, kF32, {rows, heads, head_dim});
  expect("attention.out", out, kF32, {rows, heads, head_dim});
  expect_heads_contiguous("attention.q", q);
  expect_heads_contiguous("attention.out", out);
  MR_CHECK_OP(heads.value % kv.kv_heads, ==, 0);
  if (rows.value == 0) return;
  const AttentionParams p{out.row<float>(0), q.row<float>(0),
                          heads.value,       out.strides[0],
                          q.strides[0],      kv,
                          sequences,         scale};
  MR_DISPATCH(attention, p);
}

void all_reduce(const Ctx& c, Tensor x) {
  if (!c.comm || c.comm->size() == 1 || c.dry_run()) return;
  MR_CHECK(x.contiguous() && x.dtype == kF32);
  c.comm->all_reduce_sum(static_cast<float*>(x.data), x.elements());
}

void all_gather_columns(const Ctx& c, Tensor out, Tensor x) {
  Size rows{"rows"}, n{"n"};
  expect("all_gather_columns.x", x, kF32, {rows, n});
  const int64_t ranks = c.comm ? c.comm->size() : 1;
  expect("all_gather_columns.out", out, kF32, {rows, ranks * n.value});
  Scratch tmp(*c.arena);
  Tensor parts = tmp({ranks, rows.value, n.value});
  if (c.dry_run() || rows.value == 0) return;
  MR_CHECK(x.contiguous());
  float* all = static_cast<float*>(parts.data);
  if (c.comm)
    c.comm->all_gather(all, x.row<float>(0), x.elements());
  else
    std::copy_n(x.row<float>(0), x.elements(), all);
  for (int64_t r = 0; r < ranks; ++r)
    for (int64_t t = 0; t < rows.value; ++t)
      std::copy_n(all + (r * rows.value + t) * n.value, n.value, out.row<float>(t) + r * n.value);
}

void sample(const Ctx& c, std::span<SampledToken> sampled, Tensor logits,
            std::span<const SamplingRow> rows, std::span<const int32_t> invalid_tokens) {
  Size count{"rows"}, vocab{"vocab"};
  expect("sample.logits", logits, kF32, {count, vocab});
  expect_size("sample.sampled", static_cast<int64_t>(sampled.size()), count);
  expect_size("sample.rows", static_cast<int64_t>(rows.size()), count);
  if (count.value == 0) return;
  const SampleParams p{sampled, logits.row<float>(0), count.value, vocab.value, logits.strides[0],
                       rows,    invalid_tokens};
  MR_DISPATCH(sample, p);
}

void score_tokens(const Ctx& c, std::span<SampledToken> scores, Tensor logits,
                  std::span<const int32_t> targets, int num_top,
                  std::span<const int32_t> invalid_tokens) {
  Size count{"rows"}, vocab{"vocab"};
  expect("score_tokens.logits", logits, kF32, {count, vocab});
  expect_size("score_tokens.scores", static_cast<int64_t>(scores.size()), count);
  expect_size("score_tokens.targets", static_cast<int64_t>(targets.size()), count);
  if (count.value == 0) return;
  const ScoreParams p{scores,      logits.row<float>(0), count.value,
                      vocab.value, logits.strides[0],    targets,
                      num_top,     invalid_tokens};
  MR_DISPATCH(score_tokens, p);
}

}  // namespace millrace
