#include "tests/kernels/sampling_fixture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace millrace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void normalise(std::vector<double>& p) {
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
}

// Keeps the first tokens of `order` until `enough(kept so far, their mass)`; at least one.
template <class Enough>
void keep_first(std::vector<double>& p, const std::vector<size_t>& order, Enough enough) {
  double mass = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && enough(i, mass))
      p[order[i]] = 0;
    else
      mass += p[order[i]];
  }
  normalise(p);
}

std::vector<size_t> by_probability(const std::vector<double>& p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
  return order;
}

std::vector<double> adjusted(const std::vector<float>& logits, const SamplingRow& s) {
  std::vector<double> x(logits.begin(), logits.end());
  for (size_t i = 0; i < x.size(); ++i) {
    const auto token = static_cast<int32_t>(i);
    const auto in = [&](std::span<const int32_t> set) {
      return std::find(set.begin(), set.end(), token) != set.end();
    };
    if (in(s.banned_tokens) || (!s.allowed_tokens.empty() && !in(s.allowed_tokens)))
      x[i] = -kInfinity;
    for (const TokenLogprob& bias : s.logit_bias)
      if (bias.token == token) x[i] += double{bias.logprob};
    for (size_t k = 0; k < s.seen_tokens.size(); ++k) {
      if (s.seen_tokens[k] != token) continue;
      const double repetition = s.repetition_penalty;
      x[i] = x[i] > 0 ? x[i] / repetition : x[i] * repetition;
      const int count = s.seen_output_counts[k];
      if (count > 0) x[i] -= double{s.frequency_penalty} * count + double{s.presence_penalty};
    }
  }
  return x;
}

}  // namespace

std::vector<double> sampling_distribution(std::vector<float> logits, const SamplingRow& s) {
  std::vector<double> p = adjusted(logits, s);
  const double max = *std::max_element(p.begin(), p.end());
  for (double& x : p) x = std::exp((x - max) / double{s.temperature});
  normalise(p);

  const double best = *std::max_element(p.begin(), p.end());
  for (double& x : p)
    if (x < double{s.min_p} * best) x = 0;
  normalise(p);
  if (s.top_k > 0)
    keep_first(p, by_probability(p),
               [&](size_t n, double) { return n >= static_cast<size_t>(s.top_k); });
  if (s.top_p < 1)
    keep_first(p, by_probability(p), [&](size_t, double mass) { return mass >= double{s.top_p}; });
  if (s.typical_p < 1) {
    double entropy = 0;
    for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
    std::vector<size_t> order = by_probability(p);
    while (p[order.back()] == 0) order.pop_back();
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::abs(-std::log(p[a]) - entropy) < std::abs(-std::log(p[b]) - entropy);
    });
    keep_first(p, order, [&](size_t, double mass) { return mass >= double{s.typical_p}; });
  }
  return p;
}

std::vector<double> raw_logprobs(const std::vector<float>& logits,
                                 std::span<const int32_t> invalid_tokens) {
  std::vector<double> x(logits.begin(), logits.end());
  for (const int32_t token : invalid_tokens) x[static_cast<size_t>(token)] = -kInfinity;
  const double max = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double v : x) sum += std::exp(v - max);
  for (double& v : x) v -= max + std::log(sum);
  return x;
}

ChiSquare chi_square(const std::vector<int>& observed, const std::vector<double>& probabilities) {
  const double draws = std::accumulate(observed.begin(), observed.end(), 0);
  ChiSquare result;
  double rest_observed = 0, rest_expected = 0;
  int cells = 0;
  const auto add = [&](double o, double e) {
    result.value += (o - e) * (o - e) / e;
    ++cells;
  };
  for (size_t i = 0; i < observed.size(); ++i) {
    const double expected = probabilities[i] * draws;
    if (expected >= 8) {
      add(observed[i], expected);
    } else {
      rest_observed += observed[i];
      rest_expected += expected;
    }
  }
  if (rest_expected > 1) add(rest_observed, rest_expected);
  // Wilson and Hilferty's approximation of the quantile at 4.27 standard deviations.
  const double df = std::max(1, cells - 1), a = 2 / (9 * df);
  result.limit = df * std::pow(1 - a + 4.27 * std::sqrt(a), 3);
  return result;
}

}  // namespace millrace
