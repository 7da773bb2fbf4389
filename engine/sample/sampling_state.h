// SamplingState: what sampling must remember of one running sequence: its parameters, its tokens
// and, where penalties need them, how often each occurred. Owned by the executor, one per slot;
// used by the device thread only. Rebuilt from the known tokens after a preemption, so a resumed
// sequence draws exactly what it would have drawn.
#pragma once

#include <unordered_map>
#include <vector>

#include "engine/request.h"
#include "kernels/ops.h"

namespace millrace {

class SamplingState {
 public:
  SamplingState() = default;
  // `tokens` are prompt and generated tokens known so far, the first prompt_size of them the
  // prompt.
  SamplingState(SamplingParams params, StopRules stop, std::vector<Token> eos_tokens,
                std::vector<Token> tokens, int32_t prompt_size);

  // How to draw the next token; the spans point into this object and hold until the next call of
  // a non-const function.
  SamplingRow row();
  void accept(Token token);

  Token last_token() const { return tokens_.back(); }
  int prompt_logprobs() const { return params_.prompt_logprobs; }

 private:
  bool penalised() const;
  void count(Token token, bool generated);
  void ban_ends_and_bad_words();

  SamplingParams params_;
  StopRules stop_;
  std::vector<Token> eos_tokens_;
  std::vector<Token> tokens_;
  int32_t prompt_size_ = 0;
  std::vector<TokenLogprob> logit_bias_;
  std::vector<int32_t> banned_;
  // Distinct tokens and their counts among the generated ones; filled only where penalties apply.
  std::vector<int32_t> seen_;
  std::vector<int32_t> seen_output_counts_;
  std::unordered_map<Token, size_t> seen_index_;
};

}  // namespace millrace
