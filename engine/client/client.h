// EngineClient: how the server reaches an engine, in this process or (later) in another. All
// methods may be called by any thread and never block on the engine's work.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/base/status.h"
#include "engine/request.h"

namespace millrace {

// Counters rise only; gauges are as of the last step. A plain copy, cheap to take.
struct EngineStats {
  // Gauges.
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t waiting_tokens = 0;
  int64_t kv_blocks_total = 0;
  int64_t kv_blocks_used = 0;    // held by running sequences
  int64_t kv_blocks_cached = 0;  // free, but reusable by a prefix hit
  // Counters.
  int64_t steps = 0;
  int64_t prompt_tokens = 0;        // of requests that were admitted
  int64_t computed_tokens = 0;      // rows that went through the model
  int64_t generated_tokens = 0;
  int64_t prefix_queries = 0;       // tokens looked up / found
  int64_t prefix_hits = 0;
  int64_t preemptions = 0;
  int64_t finished_stop = 0, finished_length = 0, finished_aborted = 0, finished_deadline = 0,
          finished_error = 0;
  // Tokens of each step since start, for the iteration histogram: bucket i counts steps with at
  // most kIterationBuckets[i] tokens (the last is unbounded).
  static constexpr int kIterationBuckets[] = {1,   8,    16,   32,   64,   128,  256,
                                              512, 1024, 2048, 4096, 8192, 16384};
  int64_t iteration_counts[14] = {};
  double step_seconds_sum = 0.0;
  // Health: seconds since the loop last made a full turn, and whether work waits without progress.
  double heartbeat_age_seconds = 0.0;
  double no_progress_seconds = 0.0;
};

// What one step (or an abort, or a refusal) produced, in order. Called by the engine thread with a
// list that the callee takes; it must return at once and must not throw.
using EventSink = std::function<void(std::vector<TokenEvent>&& events)>;

class EngineClient {
 public:
  virtual ~EngineClient() = default;
  // RESOURCE_EXHAUSTED: the queue is full (requests or tokens). UNAVAILABLE: draining or stopped.
  // INVALID_ARGUMENT: it can never fit. After OK exactly one event with finish != none will come.
  virtual Status submit(Request request) = 0;
  // No effect if the request has ended. Its final event (aborted) still comes.
  virtual void cancel(RequestId id) = 0;
  virtual EngineStats stats() const = 0;
  // Forgets every reusable prefix block that is not in use.
  virtual void reset_prefix_cache() = 0;
};

}  // namespace millrace
