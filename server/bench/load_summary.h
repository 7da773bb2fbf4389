// The figures of a run, by the definitions of `vllm bench serve`: a plain value, as text and as
// JSON. Requests that failed count in no rate and in no latency.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "server/bench/load_run.h"

namespace millrace::bench {

// Bounds that a good request keeps, in milliseconds; 0: not asked for.
struct Goodput {
  double ttft_ms = 0.0;
  double tpot_ms = 0.0;
  double e2e_ms = 0.0;

  bool asked() const { return ttft_ms > 0.0 || tpot_ms > 0.0 || e2e_ms > 0.0; }
};

// "ttft:500", "tpot:30", "e2el:2000", in any number.
StatusOr<Goodput> parse_goodput(const std::vector<std::string>& bounds);

struct Spread {
  double mean = 0.0, min = 0.0, max = 0.0;
  std::vector<std::pair<std::string, double>> percentiles;  // "p50", "p99.9", ...
};

// Linear between the two nearest ranks, as numpy's default; `sorted` is ascending, and not empty.
double percentile(const std::vector<double>& sorted, double p);
Spread spread_of(std::vector<double> values, const std::vector<double>& percentiles);

struct SummaryOptions {
  std::vector<double> percentiles = {50, 90, 95, 99};
  Goodput goodput;
  // The run began on an idle server and its first requests started at once: the size of that first
  // wave, whose prompts give the prefill rate. 0: no such rate.
  int first_wave = 0;
};

struct Summary {
  int sent = 0, completed = 0, failed = 0;
  int unfinished = 0;     // of an interrupted run
  int short_answers = 0;  // completed, with fewer tokens than was asked for
  int resent = 0;         // sent a second time, see Recording
  std::map<std::string, int> errors;
  std::map<std::string, std::string> first_error;  // of each class
  double duration_s = 0.0;
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  double request_rate = 0.0, output_rate = 0.0, total_rate = 0.0;  // per second
  double prefill_rate = 0.0;  // prompt tokens of the first wave / time to its last first token
  double good_rate = 0.0;     // requests within the bounds of goodput, per second
  double generator_cpu_percent = 0.0;
  int peak_concurrency = 0;
  bool interrupted = false;
  Spread ttft_ms, tpot_ms, itl_ms, e2e_ms;

  bool clean() const { return failed == 0 && short_answers == 0 && !interrupted; }
};

Summary summarise(const RunResult& run, const SummaryOptions& options);

// What the run was, beside its figures.
struct RunLabel {
  std::string label;
  std::string base_url;
  std::string model;
  nlohmann::ordered_json workload;
};

std::string summary_text(const RunLabel& label, const Summary& summary,
                         const SummaryOptions& options);
// With `run`'s requests, one by one.
nlohmann::ordered_json summary_json(const RunLabel& label, const Summary& summary,
                                    const SummaryOptions& options, const RunResult& run);

}  // namespace millrace::bench
