// Executor: turns a StepPlan into sampled tokens. Two step slots: the engine thread fills and
// submits one while the device thread computes the other. The token that a running sequence feeds
// into a step may still be on the device (sampled by the previous step); the executor keeps it
// there.
//
// A virtual interface for one reason: tests drive the engine with a scripted executor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"

namespace millrace {

// Geometry of one KV group: layers of equal lifetime (full attention, or one window size).
struct KvGroupInfo {
  int window = 0;  // tokens; 0: full attention
  int64_t num_blocks = 0;
};

struct ExecutorInfo {
  int64_t vocab = 0;    // rows of logits
  int block_size = 16;  // tokens
  int max_num_seqs = 0;
  int max_num_batched_tokens = 0;
  std::vector<KvGroupInfo> groups;
};

// One sequence's part of a step.
struct StepSequence {
  int32_t slot = -1;  // 0..max_num_seqs-1; the executor keeps per-slot sampling state
  int32_t start = 0;  // first position computed
  int32_t count = 0;  // rows, >= 1
  // The tokens of positions [start, start + count). Where the last one was sampled by a step that
  // has not been taken yet, `from_device` is true and tokens has count - 1 entries.
  std::vector<Token> tokens;
  bool from_device = false;
  bool sample = false;  // the last row's logits choose the next token
  // Full page tables per group: block of position p is blocks[g][p / block_size]; -1 outside a
  // sliding window.
  std::vector<std::vector<int32_t>> blocks;
  // Positions in [start, start + count) whose *next* prompt token's score is wanted: the first
  // `score_count` rows, with targets[i] the token at start + i + 1.
  std::vector<Token> score_targets;
  // Set when the slot is (re)used: sampling parameters and every token known so far (prompt and,
  // after a preemption, outputs). Later steps of the slot leave it empty.
  struct Begin {
    SamplingParams sampling;
    StopRules stop;
    std::vector<Token> eos_tokens;
    std::vector<Token> tokens;  // prompt + generated
    int32_t prompt_size = 0;
  };
  std::optional<Begin> begin;
};

struct StepPlan {
  std::vector<StepSequence> sequences;
  int64_t num_tokens() const {
    int64_t n = 0;
    for (const StepSequence& s : sequences) n += s.count;
    return n;
  }
};

struct StepOutput {
  int32_t slot = -1;
  Token token = -1;  // -1 if the sequence did not sample
  float logprob = 0.0f;
  std::vector<TopLogprob> top;
  std::vector<PromptScore> prompt_scores;
  std::string error;  // not empty: this sequence alone failed (NaN logits, nothing allowed)
};

struct StepResult {
  std::vector<StepOutput> outputs;  // parallel to the plan's sequences
  double seconds = 0.0;
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const ExecutorInfo& info() const = 0;
  // Engine thread. At most two plans may be in flight; results come in order of submission.
  virtual void submit(StepPlan plan) = 0;
  virtual int in_flight() const = 0;
  // The oldest result; waits for it if `wait`, else returns nothing when it is not ready.
  virtual std::optional<StepResult> take_result(bool wait) = 0;
  // Called by any thread; wakes an engine thread that waits in take_result. Not needed for
  // correctness: results wake it too.
};

}  // namespace millrace
