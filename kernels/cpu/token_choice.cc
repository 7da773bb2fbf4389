#include "kernels/cpu/token_choice.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/core/random.h"

namespace millrace::cpu {
namespace {

constexpr float kLog2E = 1.44269504f;

double mass(std::span<const Candidate> candidates) {
  double sum = 0;
  for (const Candidate& c : candidates) sum += c.weight;
  return sum;
}

class Filter {
 public:
  Filter(const LogitRow& row, const SamplingRow& s, const SampleScratch& scratch)
      : row_(row), s_(s), scratch_(scratch), scale_(kLog2E / s.temperature) {}

  int32_t draw() {
    const double u = uniform_at(s_.seed, s_.position);
    const bool top_k = s_.top_k > 0 && s_.top_k < row_.vocab;
    const bool top_p = s_.top_p < 1.0f, typical = s_.typical_p < 1.0f;
    if (!top_k && !top_p && !typical && s_.min_p <= 0.0f) return draw_from_all(u);

    std::span<Candidate> kept = collect(floor(top_k, top_p), nullptr);
    if (top_k || top_p) {
      if (top_k && static_cast<size_t>(s_.top_k) < kept.size()) {
        std::nth_element(kept.begin(), kept.begin() + (s_.top_k - 1), kept.end(), better);
        kept = kept.first(static_cast<size_t>(s_.top_k));
      }
      if (top_p) {
        // Without the other filters the mass is that of all tokens, collected or not.
        const bool all = !top_k && s_.min_p <= 0.0f;
        kept = kept.first(take_mass(kept, double{s_.top_p} * (all ? total_ : mass(kept)), better));
      }
      // Again, in the order of the vocabulary.
      const Candidate worst = *std::max_element(kept.begin(), kept.end(), better);
      kept = collect(worst.weight, &worst);
    }
    if (typical) kept = take_typical(kept);
    return draw_from(kept, u);
  }

 private:
  // A weight below which no token can be kept; the best token reaches it always.
  float floor(bool top_k, bool top_p) {
    float floor = std::max(s_.min_p, 0.0f);
    if (top_k) {
      // As many blocks have a maximum of at least this: so many tokens at least reach it.
      const int64_t blocks = row_blocks(row_.vocab);
      if (s_.top_k <= blocks) {
        float* best = scratch_.block_other;
        std::copy_n(row_.block_max, blocks, best);
        std::nth_element(best, best + (s_.top_k - 1), best + blocks, std::greater<float>());
        floor = std::max(floor, weight(best[s_.top_k - 1]));
      }
      return floor;
    }
    if (!top_p) return std::min(floor, 1.0f);
    // All tokens lighter than this weigh less together than what top_p leaves out. The mass that
    // min_p keeps is at least the best token's 1.
    double kept_mass = 1;
    if (s_.min_p <= 0.0f) kept_mass = total_ = total(0.0f);
    const double left_out = (1.0 - std::max(0.0f, s_.top_p)) * kept_mass;
    const double lightest = left_out / static_cast<double>(row_.vocab) * (1 - 1e-5);
    floor = std::min(1.0f, std::max(floor, static_cast<float>(lightest)));
    return s_.min_p <= 0.0f ? raise(floor) : floor;
  }

  // A higher floor above which top_p's share of the mass still lies, where many tokens are likely
  // to be collected otherwise.
  float raise(float floor) {
    constexpr int64_t kFewBlocks = 32;
    constexpr int kSteps = 6;
    int64_t blocks = 0;
    for (int64_t b = 0; b < row_blocks(row_.vocab); ++b)
      blocks += weight_bound(row_.block_max[b]) >= floor;
    if (blocks <= kFewBlocks) return floor;
    float low = std::log2(floor), high = 0;
    for (int step = 0; step < kSteps; ++step) {
      const float middle = (low + high) / 2;
      const bool enough = total(std::exp2(middle)) >= double{s_.top_p} * total_ * (1 + 1e-5);
      (enough ? low : high) = middle;
    }
    return std::min(std::exp2(low) * (1 - 1e-6f), 1.0f);
  }

  float weight(float logit) const {
    float w;
    row_.kernels->exp_values(&w, &logit, 1, row_.max, scale_);
    return w;
  }

  // Sum of all weights >= floor; leaves the sum of each block in scratch.block_other.
  double total(float floor) {
    row_.kernels->block_exp_sum(scratch_.block_other, row_.logits, row_.vocab, row_.max, scale_,
                                floor);
    double sum = 0;
    for (int64_t b = 0; b < row_blocks(row_.vocab); ++b) sum += double{scratch_.block_other[b]};
    return sum;
  }

  int block_weights(int64_t block, float* out) const {
    const int64_t begin = block * kRowBlock, n = std::min<int64_t>(kRowBlock, row_.vocab - begin);
    row_.kernels->exp_values(out, row_.logits + begin, n, row_.max, scale_);
    return static_cast<int>(n);
  }

  // Tokens of weight >= floor and > 0 in ascending order of ids; with `worst`, only those that are
  // at least as good.
  std::span<Candidate> collect(float floor, const Candidate* worst) {
    size_t n = 0;
    for (int64_t b = 0; b < row_blocks(row_.vocab); ++b) {
      if (weight_bound(row_.block_max[b]) < floor) continue;
      float w[kRowBlock];
      const int count = block_weights(b, w);
      for (int i = 0; i < count; ++i) {
        if (!(w[i] >= floor) || w[i] <= 0.0f) continue;
        const Candidate c{w[i], static_cast<int32_t>(b * kRowBlock + i), 0.0f};
        if (worst == nullptr || !better(*worst, c)) scratch_.candidates[n++] = c;
      }
    }
    return {scratch_.candidates, n};
  }
  // At least the weight of every logit <= `logit`; cheaper than weight().
  float weight_bound(float logit) const {
    return std::exp2((logit - row_.max) * scale_) * (1 + 1e-5f);
  }

  // Locally typical sampling (Meister et al., 2023): the tokens whose surprise is closest to the
  // entropy, until they reach a share of the mass.
  std::span<Candidate> take_typical(std::span<Candidate> kept) {
    const double all = mass(kept);
    double entropy = 0;
    for (Candidate& c : kept) {
      const double p = c.weight / all;
      const double surprise = -std::log(p);
      entropy += p * surprise;
      c.key = static_cast<float>(surprise);
    }
    for (Candidate& c : kept) c.key = std::abs(c.key - static_cast<float>(entropy));
    const auto more_typical = [](const Candidate& a, const Candidate& b) {
      return a.key != b.key ? a.key < b.key : better(a, b);
    };
    kept = kept.first(take_mass(kept, double{s_.typical_p} * all, more_typical));
    std::sort(kept.begin(), kept.end(),
              [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
    return kept;
  }

  static int32_t draw_from(std::span<const Candidate> kept, double u) {
    const double target = u * mass(kept);
    double sum = 0;
    for (const Candidate& c : kept)
      if ((sum += c.weight) > target) return c.token;
    return kept.back().token;
  }

  int32_t draw_from_all(double u) {
    const double target = u * total(0.0f);
    double sum = 0;
    int64_t block = -1;  // the one that crosses the target, or the last that weighs anything
    for (int64_t b = 0; b < row_blocks(row_.vocab); ++b) {
      const double more = scratch_.block_other[b];
      if (more <= 0) continue;
      if (block >= 0) sum += double{scratch_.block_other[block]};
      block = b;
      if (sum + more > target) break;
    }
    float w[kRowBlock];
    const int n = block_weights(block, w);
    int last = 0;
    for (int i = 0; i < n; ++i) {
      if (w[i] <= 0.0f) continue;
      last = i;
      if ((sum += double{w[i]}) > target) break;
    }
    return static_cast<int32_t>(block * kRowBlock + last);
  }

  const LogitRow& row_;
  const SamplingRow& s_;
  const SampleScratch& scratch_;
  const float scale_;
  double total_ = 0;  // set by floor() when top_p needs it
};

}  // namespace

int32_t best_token(const LogitRow& row) {
  int64_t block = 0;
  while (row.block_max[block] != row.max) ++block;
  int64_t i = block * kRowBlock;
  while (row.logits[i] != row.max) ++i;
  return static_cast<int32_t>(i);
}

int best_logits(const LogitRow& row, int k, Candidate* out, const SampleScratch& scratch) {
  if (k <= 0) return 0;
  const int64_t blocks = row_blocks(row.vocab);
  float floor = -std::numeric_limits<float>::infinity();
  if (k <= blocks) {
    float* best = scratch.block_other;
    std::copy_n(row.block_max, blocks, best);
    std::nth_element(best, best + (k - 1), best + blocks, std::greater<float>());
    floor = best[k - 1];
  }
  size_t n = 0;
  for (int64_t b = 0; b < blocks; ++b) {
    if (row.block_max[b] < floor) continue;
    const int64_t end = std::min((b + 1) * kRowBlock, row.vocab);
    for (int64_t i = b * kRowBlock; i < end; ++i)
      if (row.logits[i] >= floor && std::isfinite(row.logits[i]))
        scratch.candidates[n++] = {row.logits[i], static_cast<int32_t>(i), 0.0f};
  }
  const size_t count = std::min(n, static_cast<size_t>(k));
  std::partial_sort(scratch.candidates, scratch.candidates + count, scratch.candidates + n, better);
  std::copy_n(scratch.candidates, count, out);
  return static_cast<int>(count);
}

double log_sum_exp(const LogitRow& row, const SampleScratch& scratch) {
  row.kernels->block_exp_sum(scratch.block_other, row.logits, row.vocab, row.max, kLog2E, 0.0f);
  double sum = 0;
  for (int64_t b = 0; b < row_blocks(row.vocab); ++b) sum += double{scratch.block_other[b]};
  return std::log(sum);
}

int32_t draw_token(const LogitRow& row, const SamplingRow& s, const SampleScratch& scratch) {
  // Limits that leave one token; so does a temperature too small to divide by.
  constexpr float kCold = 1e-6f;
  if (s.top_k == 1 || s.top_p <= 0.0f || s.min_p >= 1.0f || s.temperature < kCold)
    return best_token(row);
  return Filter(row, s, scratch).draw();
}

}  // namespace millrace::cpu
