// Sends a workload and collects what came back. Closed loop: everything is due at once and a new
// request starts when one of `max_concurrency` ends. Open loop: requests start when they are due,
// whatever the server does. One rule does both: start what is due while there is room.
#pragma once

#include <functional>
#include <limits>
#include <vector>

#include "server/bench/load_answer.h"
#include "server/bench/load_client.h"
#include "server/bench/workload.h"

namespace millrace::bench {

struct RunOptions {
  int max_concurrency = std::numeric_limits<int>::max();
  double timeout_s = 600.0;  // of one request
  // Called on the run's thread after each answer.
  std::function<void(size_t done, size_t total)> on_progress;
};

struct RequestResult {
  bool finished = false;  // false: not sent, or still running when the run was interrupted
  bool resent = false;    // see Recording
  double start_s = 0.0;   // since the run's start
  double end_s = 0.0;
  int prompt_tokens = 0;    // the server's count, else ours
  int expected_tokens = 0;  // see LoadRequest
  Answer answer;

  bool ok() const { return finished && answer.failure.empty(); }
  bool is_short() const { return ok() && answer.tokens < expected_tokens; }
};

struct RunResult {
  std::vector<RequestResult> requests;  // in the workload's order
  double duration_s = 0.0;              // start of the run to the end of its last answer
  double generator_cpu_s = 0.0;         // of this process in that time
  int peak_concurrency = 0;
  bool interrupted = false;
};

// Runs on the calling thread until every request is answered, has failed or has timed out. SIGINT
// and SIGTERM end it early: what is still running is dropped.
RunResult run_load(const Target& target, const std::vector<LoadRequest>& requests,
                   const RunOptions& options);

}  // namespace millrace::bench
