// Intake: the bounded door between the threads that submit and the engine thread. Counts what has
// been accepted and not yet started, remembers which ids are open, and wakes the engine. Owned by
// the engine; each method says who calls it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "engine/base/status.h"
#include "engine/request.h"

namespace millrace {

class Intake {
 public:
  struct Limits {
    int64_t requests = 0;  // accepted, but not started
    int64_t tokens = 0;    // of their prompts
  };
  struct Arrival {
    Request request;
    TimePoint time;
  };
  struct Batch {
    std::vector<Arrival> arrivals;
    std::vector<RequestId> cancels;  // of requests that were open when asked; may arrive with them
    bool reset_prefix_cache = false;
    bool closed = false;
  };

  explicit Intake(Limits limits) : limits_(limits) {}

  // Any thread.
  Status submit(Request request, TimePoint now);
  void cancel(RequestId id);
  void reset_prefix_cache();
  void close();  // nothing is accepted from here on
  int64_t num_pending() const { return num_pending_.load(std::memory_order_relaxed); }
  int64_t num_open() const;

  // Engine thread. What has come in, waiting at most `patience` for anything to.
  Batch take(std::chrono::milliseconds patience);
  // `requests` with `tokens` prompt tokens have started, or ended unstarted.
  void left_queue(int64_t requests, int64_t tokens);
  // Requests with a final event among `events` have ended.
  void close_ended(const std::vector<TokenEvent>& events);

 private:
  void signal();

  const Limits limits_;
  std::atomic<bool> has_news_ = false;
  std::atomic<int64_t> num_pending_ = 0;  // arrivals not taken yet

  mutable std::mutex mutex_;  // guards the following
  std::condition_variable wake_;
  Batch batch_;
  std::unordered_set<RequestId> open_;       // accepted, not ended
  std::unordered_set<RequestId> cancelled_;  // of open_: bounds batch_.cancels
  int64_t queued_requests_ = 0;
  int64_t queued_tokens_ = 0;
};

}  // namespace millrace
