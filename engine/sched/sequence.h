// Sequence: one accepted request on its way through the engine. It has no phase: tokens are known,
// positions are scheduled (in a plan) and computed (their result was taken).
//
//   0 ........ computed ........ scheduled ........ known = tokens + pending
//     in the cache      in flight          still to plan
//
// Owned by the scheduler; engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/cache/paged_cache.h"
#include "engine/request.h"

namespace millrace {

struct Sequence {
  Request request;
  TimePoint submitted;
  uint64_t arrival = 0;       // order of acceptance
  int64_t max_tokens = 0;     // the request's, within the context limit
  std::vector<Token> tokens;  // prompt, then accepted output
  PrefixChain chain;          // of tokens

  // While running.
  PageTable table;
  int32_t slot = -1;
  bool begun = false;     // a step of this slot has been planned
  bool evicting = false;  // to be preempted when nothing of it is in flight
  int64_t scheduled = 0;
  int64_t computed = 0;
  int in_flight = 0;  // steps that refer to it
  int pending = 0;    // of those, how many sample a token
  // Blocks [announced_begin, announced_end) of chain that others may wait for.
  int64_t announced_begin = 0, announced_end = 0;

  // While waiting.
  std::optional<Hash128> awaited;  // a block that a running sequence is computing

  bool started = false;  // has left the queue once
  bool finished = false;
  int64_t score_begin = 0;  // rows before it have delivered their prompt scores
  int64_t scored = 0;
  // What the first event carries.
  bool reported = false;
  int32_t cached_tokens = 0;
  double queue_seconds = 0.0;

  int64_t prompt_size() const { return static_cast<int64_t>(request.prompt.size()); }
  int64_t num_tokens() const { return static_cast<int64_t>(tokens.size()); }
  int64_t num_generated() const { return num_tokens() - prompt_size(); }
  bool wants_scores() const { return request.sampling.prompt_logprobs >= 0; }
  // Rows whose next token's score is still wanted are [score_begin, score_end).
  int64_t score_end() const { return wants_scores() ? prompt_size() - 1 : 0; }
  // The last generated token is never fed back, nor, without one, the prompt's last.
  int64_t last_row() const { return prompt_size() + max_tokens - 1; }
  int64_t known() const { return num_tokens() + pending; }
  int64_t remaining() const { return std::min(known(), last_row()) - scheduled; }

  // Order of service: class, then age.
  std::pair<int32_t, uint64_t> rank() const { return {request.priority, arrival}; }
};

struct RankLess {
  bool operator()(const Sequence* a, const Sequence* b) const { return a->rank() < b->rank(); }
};

}  // namespace millrace
