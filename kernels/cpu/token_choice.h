// Choosing one token from a row of adjusted logits: the filters and the draw. Pure functions of the
// row, its parameters and the scratch they are given; any thread may call them.
//
// Weights are w(i) = 2^((logit(i) - max) * scale), so that the best token weighs exactly 1 and
// nothing is normalised. They are computed on the fly from blocks of kRowBlock logits; a block
// whose best logit is too small to matter is never touched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/cpu/row_kernels.h"
#include "kernels/ops.h"

namespace millrace::cpu {

struct Candidate {
  float weight;
  int32_t token;
  float key;  // order used by typical_p
};
// Heavier first; among equals the lower id.
inline bool better(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

// One thread's scratch for rows of up to `vocab` logits.
struct SampleScratch {
  float* row;             // [vocab]
  Candidate* candidates;  // [vocab]
  float* block_max;       // [row_blocks(vocab)]
  float* block_other;     // [row_blocks(vocab)]
};

struct LogitRow {
  const RowKernels* kernels;
  const float* logits;  // [vocab], no NaN
  int64_t vocab;
  const float* block_max;  // [row_blocks(vocab)]
  float max;               // finite
};

// Index of the first logit equal to the maximum.
int32_t best_token(const LogitRow& row);

// The best k tokens by logit (ties: lower id) that are not -inf, best first; at most k, returns how
// many. Their weights are logits.
int best_logits(const LogitRow& row, int k, Candidate* out, const SampleScratch& scratch);

// Natural logarithm of the sum of e^(logit - max).
double log_sum_exp(const LogitRow& row, const SampleScratch& scratch);

// Draws by temperature and filters; temperature > 0.
int32_t draw_token(const LogitRow& row, const SamplingRow& s, const SampleScratch& scratch);

// The smallest number of first candidates in the order `less` whose weights reach `target`; they
// come first in the span afterwards, in no particular order. At least 1, at most all.
template <class Less>
size_t take_mass(std::span<Candidate> candidates, double target, Less less) {
  constexpr size_t kSmall = 16;
  const auto at = [&](size_t i) { return candidates.begin() + static_cast<int64_t>(i); };
  size_t begin = 0, end = candidates.size();  // the answer is in (begin, end]
  double before = 0;                          // mass of [0, begin)
  while (end - begin > kSmall) {
    const size_t middle = begin + (end - begin) / 2;
    std::nth_element(at(begin), at(middle), at(end), less);
    double upper = 0;
    for (size_t i = begin; i < middle; ++i) upper += candidates[i].weight;
    if (before + upper >= target) {
      end = middle;
    } else {
      before += upper;
      begin = middle;
    }
  }
  std::sort(at(begin), at(end), less);
  while (begin < end) {
    before += candidates[begin++].weight;
    if (before >= target) break;
  }
  return begin;
}

}  // namespace millrace::cpu
