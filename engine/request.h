// The whole vocabulary between the server and the engine: values that can be serialised, no
// pointers. A Request is made by the server (already validated), moved into the engine, and never
// modified. TokenEvents come back in order, one list per step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/token.h"

namespace millrace {

struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy
  float top_p = 1.0f;
  float min_p = 0.0f;
  float typical_p = 1.0f;
  int32_t top_k = 0;  // 0: off
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint64_t seed = 0;          // always set: the server draws one when the request has none
  int32_t logprobs = -1;         // -1: none; 0: the chosen token's; k: also the best k
  int32_t prompt_logprobs = -1;  // same, for prompt tokens
  std::vector<std::pair<Token, float>> logit_bias;
  std::vector<Token> allowed_tokens;           // empty: all
  std::vector<std::vector<Token>> bad_words;   // a banned token sequence each
};

// Token-level stops; stop strings live with the detokenizer in the server.
struct StopRules {
  int32_t max_tokens = 0;  // generated tokens, >= 0 (0: only prompt scores are wanted)
  int32_t min_tokens = 0;  // no eos or stop token among the first min_tokens generated ones
  bool ignore_eos = false;
  std::vector<Token> stop_tokens;  // besides the model's eos tokens
};

struct Request {
  RequestId id = 0;
  std::vector<Token> prompt;  // at least one token
  SamplingParams sampling;
  StopRules stop;
  int32_t priority = 0;               // lower runs earlier, as in vLLM
  std::optional<TimePoint> deadline;  // dropped with Finish::deadline when it passes
  std::string cache_salt;             // prefixes are shared among equal salts only
};

enum class Finish : uint8_t {
  none,      // more will come
  stop,      // an eos or stop token (TokenEvent::token is that token)
  length,    // max_tokens or the context limit
  aborted,   // cancelled
  deadline,
  error,     // TokenEvent::error says why
};

struct TopLogprob {
  Token token;
  float logprob;
};

// Scores of one prompt token (position >= 1); position 0 has none.
struct PromptScore {
  Token token;
  float logprob;
  std::vector<TopLogprob> top;
};

struct TokenEvent {
  RequestId id = 0;
  Token token = -1;  // -1: no token (only scores, or only a finish)
  float logprob = 0.0f;
  std::vector<TopLogprob> top;
  std::vector<PromptScore> prompt_scores;  // in order, as the prompt is computed
  int32_t cached_tokens = -1;              // on the first event: prompt tokens found in the cache
  Finish finish = Finish::none;
  std::string error;
  // On the first event of a request, seconds from submit to first scheduling.
  float queue_seconds = 0.0f;
};

}  // namespace millrace
