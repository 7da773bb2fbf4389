// A slow, literal sampler in double precision: the probability of every token of a row.
#pragma once

#include <vector>

#include "kernels/ops.h"

namespace millrace {

// After bans, bias, penalties, temperature and all filters. temperature > 0. Renormalised at every
// step, over a fully sorted vocabulary.
std::vector<double> sampling_distribution(std::vector<float> logits, const SamplingRow& s);

// Raw log-probabilities over the tokens that are not invalid.
std::vector<double> raw_logprobs(const std::vector<float>& logits,
                                 std::span<const int32_t> invalid_tokens);

// sum of (observed - expected)^2 / expected over cells with enough expected draws, the others
// merged into one; `limit` is what a correct sampler exceeds less than once in 10^5.
struct ChiSquare {
  double value = 0;
  double limit = 0;
};
ChiSquare chi_square(const std::vector<int>& observed, const std::vector<double>& probabilities);

}  // namespace millrace
