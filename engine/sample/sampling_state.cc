#include "engine/sample/sampling_state.h"

#include <algorithm>
#include <utility>

namespace millrace {

SamplingState::SamplingState(SamplingParams params, StopRules stop, std::vector<Token> eos_tokens,
                             std::vector<Token> tokens, int32_t prompt_size)
    : params_(std::move(params)),
      stop_(std::move(stop)),
      eos_tokens_(std::move(eos_tokens)),
      tokens_(std::move(tokens)),
      prompt_size_(prompt_size) {
  for (const auto& [token, bias] : params_.logit_bias) logit_bias_.push_back({token, bias});
  if (!penalised()) return;
  for (size_t i = 0; i < tokens_.size(); ++i)
    count(tokens_[i], i >= static_cast<size_t>(prompt_size_));
}

bool SamplingState::penalised() const {
  return params_.repetition_penalty != 1.0f || params_.presence_penalty != 0.0f ||
         params_.frequency_penalty != 0.0f;
}

void SamplingState::count(Token token, bool generated) {
  const auto [it, added] = seen_index_.try_emplace(token, seen_.size());
  if (added) {
    seen_.push_back(token);
    seen_output_counts_.push_back(0);
  }
  if (generated) ++seen_output_counts_[it->second];
}

void SamplingState::ban_ends_and_bad_words() {
  banned_.clear();
  const auto generated = static_cast<int32_t>(tokens_.size()) - prompt_size_;
  if (generated < stop_.min_tokens) {
    banned_.insert(banned_.end(), eos_tokens_.begin(), eos_tokens_.end());
    banned_.insert(banned_.end(), stop_.stop_tokens.begin(), stop_.stop_tokens.end());
  }
  // The last token of a bad word is banned where the generated text ends with all before it.
  for (const std::vector<Token>& word : params_.bad_words) {
    if (word.empty()) continue;
    const size_t prefix = word.size() - 1;
    if (prefix > static_cast<size_t>(generated)) continue;
    if (std::equal(word.begin(), word.end() - 1, tokens_.end() - static_cast<int64_t>(prefix)))
      banned_.push_back(word.back());
  }
}

SamplingRow SamplingState::row() {
  ban_ends_and_bad_words();
  SamplingRow row;
  row.temperature = params_.temperature;
  row.top_p = params_.top_p;
  row.min_p = params_.min_p;
  row.typical_p = params_.typical_p;
  row.top_k = params_.top_k;
  row.repetition_penalty = params_.repetition_penalty;
  row.presence_penalty = params_.presence_penalty;
  row.frequency_penalty = params_.frequency_penalty;
  row.seed = params_.seed;
  row.position = tokens_.size();
  row.num_logprobs = params_.logprobs;
  row.seen_tokens = seen_;
  row.seen_output_counts = seen_output_counts_;
  row.logit_bias = logit_bias_;
  row.banned_tokens = banned_;
  row.allowed_tokens = params_.allowed_tokens;
  return row;
}

void SamplingState::accept(Token token) {
  tokens_.push_back(token);
  if (penalised()) count(token, true);
}

}  // namespace millrace
