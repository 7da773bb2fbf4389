// Sampling and scoring of rows of logits. A row is decided by one thread, from its own logits and
// parameters alone. The filters and the draw are in token_choice.cc.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/token_choice.h"

namespace millrace::cpu {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
// Reported instead of -inf, which JSON cannot express.
constexpr float kLogprobFloor = -9999.0f;

// True if the row can be worked with: no NaN, and a finite maximum.
bool inspect(LogitRow* row, const RowKernels& kernels, const float* logits, int64_t vocab,
             float* block_max) {
  *row = {&kernels, logits, vocab, block_max, kImpossible};
  if (!kernels.block_max(block_max, logits, vocab)) return false;
  for (int64_t b = 0; b < row_blocks(vocab); ++b) row->max = std::max(row->max, block_max[b]);
  return std::isfinite(row->max);
}

void forbid(float* logits, int64_t vocab, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens)
    if (token >= 0 && token < vocab) logits[token] = kImpossible;
}

bool adjusts(const SamplingRow& s) {
  const bool penalties =
      s.repetition_penalty != 1.0f || s.presence_penalty != 0.0f || s.frequency_penalty != 0.0f;
  return !s.allowed_tokens.empty() || !s.banned_tokens.empty() || !s.logit_bias.empty() ||
         (penalties && !s.seen_tokens.empty());
}

// out = logits after bans, bias and penalties.
void adjust(float* out, const float* logits, int64_t vocab, const SamplingRow& s) {
  if (s.allowed_tokens.empty()) {
    std::copy_n(logits, vocab, out);
  } else {
    std::fill_n(out, vocab, kImpossible);
    for (const int32_t token : s.allowed_tokens)
      if (token >= 0 && token < vocab) out[token] = logits[token];
  }
  forbid(out, vocab, s.banned_tokens);
  for (const TokenLogprob& bias : s.logit_bias)
    if (bias.token >= 0 && bias.token < vocab) out[bias.token] += bias.logprob;
  MR_CHECK_OP(s.seen_tokens.size(), ==, s.seen_output_counts.size());
  for (size_t i = 0; i < s.seen_tokens.size(); ++i) {
    const int32_t token = s.seen_tokens[i], count = s.seen_output_counts[i];
    if (token < 0 || token >= vocab || out[token] == kImpossible) continue;
    float& x = out[token];
    if (s.repetition_penalty != 1.0f)
      x = x > 0 ? x / s.repetition_penalty : x * s.repetition_penalty;
    if (count <= 0) continue;
    x -= s.frequency_penalty * static_cast<float>(count);
    x -= s.presence_penalty;
  }
}

// Log-probabilities of the untouched logits.
void report(SampledToken* out, const LogitRow& raw, int num_top, const SampleScratch& scratch) {
  const double log_sum = log_sum_exp(raw, scratch);
  const auto logprob = [&](float logit) {
    return std::max(static_cast<float>(double{logit} - double{raw.max} - log_sum), kLogprobFloor);
  };
  out->logprob = logprob(raw.logits[out->token]);
  Candidate top[kMaxTopLogprobs];
  out->num_top = best_logits(raw, std::clamp(num_top, 0, kMaxTopLogprobs), top, scratch);
  for (int i = 0; i < out->num_top; ++i) out->top[i] = {top[i].token, logprob(top[i].weight)};
}

SampledToken sample_row(const RowKernels& kernels, const float* logits, int64_t vocab,
                        const SamplingRow& s, const SampleScratch& scratch) {
  SampledToken out;
  LogitRow raw, row;
  if (!inspect(&raw, kernels, logits, vocab, scratch.block_max)) return out;
  row = raw;
  if (adjusts(s)) {
    adjust(scratch.row, logits, vocab, s);
    if (!inspect(&row, kernels, scratch.row, vocab, scratch.block_max)) return out;
  }
  out.token = s.temperature > 0.0f ? draw_token(row, s, scratch) : best_token(row);
  if (s.num_logprobs < 0) return out;
  if (row.logits != raw.logits) kernels.block_max(scratch.block_max, logits, vocab);
  report(&out, raw, s.num_logprobs, scratch);
  return out;
}

SampledToken score_row(const RowKernels& kernels, const float* logits, int64_t vocab,
                       int32_t target, int num_top, const SampleScratch& scratch) {
  SampledToken out;
  LogitRow raw;
  if (!inspect(&raw, kernels, logits, vocab, scratch.block_max)) return out;
  MR_CHECK_OP(target, >=, 0);
  MR_CHECK_OP(target, <, vocab);
  out.token = target;
  report(&out, raw, num_top, scratch);
  return out;
}

// Takes one scratch per thread and calls f(row, scratch) for every row.
template <class F>
void for_each_row(const Ctx& c, int64_t rows, int64_t vocab, F&& f) {
  const int threads = c.pool->size();
  const size_t n = static_cast<size_t>(vocab), blocks = static_cast<size_t>(row_blocks(vocab));
  Scratch tmp(*c.arena);
  auto* scratch = static_cast<SampleScratch*>(tmp.bytes(sizeof(SampleScratch) * threads));
  for (int t = 0; t < threads; ++t) {
    SampleScratch s;
    s.row = static_cast<float*>(tmp.bytes(n * sizeof(float)));
    s.candidates = static_cast<Candidate*>(tmp.bytes(n * sizeof(Candidate)));
    s.block_max = static_cast<float*>(tmp.bytes(blocks * sizeof(float)));
    s.block_other = static_cast<float*>(tmp.bytes(blocks * sizeof(float)));
    if (!c.dry_run()) scratch[t] = s;
  }
  if (c.dry_run()) return;
  if (rows == 1 || threads == 1) {
    for (int64_t r = 0; r < rows; ++r) f(r, scratch[0]);
    return;
  }
  c.pool->run([&](int t) {
    for (int64_t r = rows * t / threads; r < rows * (t + 1) / threads; ++r) f(r, scratch[t]);
  });
}

}  // namespace

void sample(const Ctx& c, const SampleParams& p) {
  const RowKernels& kernels = row_kernels(c.cpu_level);
  for_each_row(c, p.rows, p.vocab, [&](int64_t r, const SampleScratch& scratch) {
    float* logits = p.logits + r * p.logits_stride;
    forbid(logits, p.vocab, p.invalid_tokens);
    p.sampled[static_cast<size_t>(r)] =
        sample_row(kernels, logits, p.vocab, p.sampling[static_cast<size_t>(r)], scratch);
  });
}

void score_tokens(const Ctx& c, const ScoreParams& p) {
  const RowKernels& kernels = row_kernels(c.cpu_level);
  for_each_row(c, p.rows, p.vocab, [&](int64_t r, const SampleScratch& scratch) {
    const float* logits = p.logits + r * p.logits_stride;
    if (!p.invalid_tokens.empty()) {
      std::copy_n(logits, p.vocab, scratch.row);
      forbid(scratch.row, p.vocab, p.invalid_tokens);
      logits = scratch.row;
    }
    p.scores[static_cast<size_t>(r)] =
        score_row(kernels, logits, p.vocab, p.targets[static_cast<size_t>(r)], p.num_top, scratch);
  });
}

}  // namespace millrace::cpu
