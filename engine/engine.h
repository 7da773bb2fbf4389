// Engine: the loop, and the whole public API of one replica. Owns the scheduler, the KV cache and
// the executor; its own thread runs the loop, and all scheduling state belongs to that thread.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/client/client.h"
#include "engine/exec/executor.h"

namespace millrace {

struct EngineOptions {
  int64_t max_model_len = 0;
  int max_num_seqs = 64;             // sequences that run at once
  int max_num_batched_tokens = 512;  // rows of one step
  double itl_target_seconds = 0.0;   // see engine/sched/step_pace.h; 0: automatic
  int64_t max_num_queued_requests = 4096;
  int64_t max_num_queued_tokens = 4'000'000;
  bool enable_prefix_caching = true;
  std::vector<Token> eos_tokens;
};

class Engine final : public EngineClient {
 public:
  // `sink` is called on the engine thread and must outlive the engine.
  Engine(EngineOptions options, std::unique_ptr<Executor> executor, EventSink sink);
  ~Engine() override;  // stop()

  Status submit(Request request) override;
  void cancel(RequestId id) override;
  EngineStats stats() const override;
  void reset_prefix_cache() override;

  // Ends every request with Finish::aborted and joins the thread. Later submits are UNAVAILABLE.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
