// Metrics: everything that /metrics shows. Owned by the service; io thread only, so that a scrape
// takes no lock that serving or the scheduler ever waits for: the engine's part is a plain copy of
// its statistics, taken at each scrape.
//
// Recording never fails: a value that cannot be (a counter that falls, a negative duration) is
// counted in millrace_internal_errors_total and otherwise ignored.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/client/client.h"
#include "server/net/http_server.h"

namespace millrace::app {

// How an accepted request ended, as the label finished_reason names it.
enum class FinishedReason : uint8_t { stop, length, abort, error };
std::string_view finished_reason_name(FinishedReason reason);

// One accepted request, at its end. Durations in seconds; absent where the phase was not reached.
struct RequestRecord {
  FinishedReason reason = FinishedReason::stop;
  int64_t prompt_tokens = 0;  // of all engine requests that were scheduled
  int64_t cached_tokens = 0;
  int64_t generated_tokens = 0;      // of all choices
  int64_t max_generated_tokens = 0;  // of the longest choice
  int64_t max_tokens = 0;
  int n = 1;
  double e2e = 0.0;
  std::optional<double> queue, time_to_first_token, prefill, decode, inference;
};

struct CacheInfo {
  int64_t block_size = 0;
  int64_t num_blocks = 0;
  int64_t max_model_len = 0;
  bool prefix_caching = true;
  std::string cache_dtype;
};

class Metrics {
 public:
  // `aliases`: export vLLM's names beside our own.
  explicit Metrics(bool aliases);
  ~Metrics();

  // Names the model; what has its label exists from here on.
  void bind_model(const std::string& model_name, const CacheInfo& cache);

  void http_answered(std::string_view route, int status);
  void rejected(std::string_view reason);
  void deadline_dropped();
  void request_accepted();
  void request_finished(const RequestRecord& record);
  void time_to_first_token(double seconds);
  void inter_token(double seconds);
  void start_phase(std::string_view phase, double seconds);
  void log_lines_dropped(int64_t total);

  int64_t in_flight() const;  // accepted and not yet finished

  // The text exposition. `engine` is null before the engine exists.
  std::string render(const EngineStats* engine, const net::ServerStats& server);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::app
