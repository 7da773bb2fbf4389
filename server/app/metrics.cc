#include "server/app/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <iterator>
#include <map>
#include <vector>

#include "server/app/metric_buckets.h"
#include "server/app/process_stats.h"

namespace millrace::app {

using prometheus::Labels;

namespace {

// The same value under our name and, if wanted, under vLLM's. Points into the registry.
struct CounterPair {
  prometheus::Counter* own = nullptr;
  prometheus::Counter* alias = nullptr;
  double last = 0.0;  // of a total that somebody else counts

  void add(double amount) {
    if (own) own->Increment(amount);
    if (alias) alias->Increment(amount);
  }
};

struct GaugePair {
  prometheus::Gauge* own = nullptr;
  prometheus::Gauge* alias = nullptr;

  void set(double value) {
    if (own) own->Set(value);
    if (alias) alias->Set(value);
  }
};

struct HistogramPair {
  prometheus::Histogram* own = nullptr;
  prometheus::Histogram* alias = nullptr;

  void observe(double value) {
    if (own) own->Observe(value);
    if (alias) alias->Observe(value);
  }
};

}  // namespace

std::string_view finished_reason_name(FinishedReason reason) {
  switch (reason) {
    case FinishedReason::stop: return "stop";
    case FinishedReason::length: return "length";
    case FinishedReason::abort: return "abort";
    case FinishedReason::error: return "error";
  }
  return "error";
}

struct Metrics::Impl {
  explicit Impl(bool aliases) : aliases(aliases) {}

  prometheus::Counter& counter(const std::string& name, const std::string& help,
                               const Labels& labels) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
  }
  prometheus::Gauge& gauge(const std::string& name, const std::string& help, const Labels& labels) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
  }

  CounterPair counters(const std::string& name, const std::string& help, const Labels& extra = {}) {
    Labels labels = model_labels;
    labels.insert(extra.begin(), extra.end());
    CounterPair pair;
    pair.own = &counter("millrace_" + name + "_total", help, labels);
    if (aliases) pair.alias = &counter("vllm:" + name + "_total", help, labels);
    return pair;
  }
  GaugePair gauges(const std::string& name, const std::string& alias, const std::string& help,
                   const Labels& extra = {}) {
    Labels labels = model_labels;
    labels.insert(extra.begin(), extra.end());
    GaugePair pair;
    pair.own = &gauge("millrace_" + name, help, labels);
    if (aliases) pair.alias = &gauge("vllm:" + alias, help, labels);
    return pair;
  }
  HistogramPair histograms(const std::string& name, const std::string& help,
                           const std::vector<double>& own_buckets,
                           const std::vector<double>& alias_buckets) {
    const auto add = [&](const std::string& full_name, const std::vector<double>& buckets) {
      return &prometheus::BuildHistogram().Name(full_name).Help(help).Register(registry).Add(
          model_labels, prometheus::Histogram::BucketBoundaries(buckets));
    };
    HistogramPair pair;
    pair.own = add("millrace_" + name, own_buckets);
    if (aliases) pair.alias = add("vllm:" + name, alias_buckets);
    return pair;
  }
  HistogramPair latencies(const std::string& name, const std::string& help,
                          const std::vector<double>& alias_buckets) {
    return histograms(name, help, own_latency_buckets(), alias_buckets);
  }

  void internal_error() { errors.Increment(); }

  // Raises a counter to a total that is counted elsewhere.
  void follow(CounterPair& pair, double total) {
    if (total < pair.last) return internal_error();
    pair.add(total - pair.last);
    pair.last = total;
  }
  void observe(HistogramPair& pair, double value) {
    if (!(value >= 0.0)) return internal_error();
    pair.observe(value);
  }
  void observe(HistogramPair& pair, const std::optional<double>& value) {
    if (value) observe(pair, *value);
  }

  void bind_counters();
  void bind_gauges(const CacheInfo& cache);
  void bind_histograms(int64_t max_model_len);
  void update_from_engine(const EngineStats& stats);
  void update_iterations(const EngineStats& stats);
  void update_process();

  const bool aliases;
  prometheus::Registry registry;
  prometheus::Counter& errors = counter("millrace_internal_errors_total",
                                        "Impossible values that statistics were given.", {});
  Labels model_labels;
  bool bound = false;
  int64_t accepted_count = 0, finished_count = 0;

  prometheus::Family<prometheus::Counter>* http_family = nullptr;
  prometheus::Family<prometheus::Counter>* rejected_family = nullptr;
  prometheus::Family<prometheus::Gauge>* phase_family = nullptr;
  prometheus::Counter* deadline_total = nullptr;
  prometheus::Counter* log_dropped_total = nullptr;
  prometheus::Counter* refused_total = nullptr;
  prometheus::Counter* cpu_seconds_total = nullptr;
  prometheus::Gauge *connections = nullptr, *exchanges = nullptr, *resident = nullptr,
                    *open_fds = nullptr, *start_time = nullptr;

  CounterPair prefix_queries, prefix_hits, preemptions, prompt_tokens, generation_tokens,
      cached_tokens;
  std::map<FinishedReason, CounterPair> finished;
  prometheus::Counter *accepted = nullptr, *steps = nullptr, *step_seconds = nullptr,
                      *computed_tokens = nullptr;
  GaugePair running, waiting, waiting_capacity, waiting_deferred, cache_usage;
  prometheus::Gauge *waiting_tokens = nullptr, *heartbeat_age = nullptr, *no_progress = nullptr;
  HistogramPair first_token, inter_token, per_output_token, e2e, queue, inference, prefill, decode,
      request_prompt, request_generation, request_max_generation, params_max_tokens, params_n,
      iteration;
  EngineStats last_stats;
};

Metrics::Metrics(bool aliases) : impl_(std::make_unique<Impl>(aliases)) {
  Impl& m = *impl_;
  m.http_family = &prometheus::BuildCounter()
                       .Name("millrace_http_requests_total")
                       .Help("Answered HTTP requests by route and status.")
                       .Register(m.registry);
  m.rejected_family = &prometheus::BuildCounter()
                           .Name("millrace_queue_rejected_total")
                           .Help("Requests refused because a queue was full or closed.")
                           .Register(m.registry);
  m.phase_family = &prometheus::BuildGauge()
                        .Name("millrace_start_phase_seconds")
                        .Help("Duration of each phase of the start.")
                        .Register(m.registry);
  m.deadline_total = &m.counter("millrace_deadline_dropped_total",
                                "Requests that ended because their deadline passed.", {});
  m.log_dropped_total =
      &m.counter("millrace_log_lines_dropped_total", "Log lines lost to a slow reader.", {});
  m.refused_total = &m.counter("millrace_http_refused_total",
                               "Requests and connections refused before any route saw them.", {});
  m.connections = &m.gauge("millrace_http_connections", "Open connections.", {});
  m.exchanges = &m.gauge("millrace_http_requests_in_flight", "HTTP requests being answered.", {});
  m.gauge("millrace_build_info", "Always 1; the labels describe the build.",
          {{"version", std::string(kVersion)}})
      .Set(1.0);
  m.cpu_seconds_total = &m.counter("process_cpu_seconds_total", "User and system CPU time.", {});
  m.resident = &m.gauge("process_resident_memory_bytes", "Resident memory.", {});
  m.open_fds = &m.gauge("process_open_fds", "Open file descriptors.", {});
  m.start_time = &m.gauge("process_start_time_seconds", "Start time, unix seconds.", {});
}

Metrics::~Metrics() = default;

void Metrics::bind_model(const std::string& model_name, const CacheInfo& cache) {
  Impl& m = *impl_;
  if (m.bound) return;
  m.bound = true;
  m.model_labels = {{"model_name", model_name}, {"engine", "0"}};
  m.bind_counters();
  m.bind_gauges(cache);
  m.bind_histograms(cache.max_model_len);
}

void Metrics::Impl::bind_counters() {
  prefix_queries = counters("prefix_cache_queries", "Prompt tokens looked up in the cache.");
  prefix_hits = counters("prefix_cache_hits", "Prompt tokens found in the cache.");
  preemptions = counters("num_preemptions", "Sequences that gave their blocks back.");
  prompt_tokens = counters("prompt_tokens", "Prompt tokens of scheduled requests.");
  generation_tokens = counters("generation_tokens", "Generated tokens.");
  cached_tokens = counters("prompt_tokens_cached",
                           "Prompt tokens of finished requests that came "
                           "from the cache.");
  for (FinishedReason reason : {FinishedReason::stop, FinishedReason::length, FinishedReason::abort,
                                FinishedReason::error}) {
    finished[reason] = counters("request_success", "Accepted requests by how they ended.",
                                {{"finished_reason", std::string(finished_reason_name(reason))}});
  }
  accepted =
      &counter("millrace_requests_accepted_total",
               "Requests that the engine took. Each ends as one finished_reason.", model_labels);
  steps = &counter("millrace_steps_total", "Engine steps.", model_labels);
  step_seconds = &counter("millrace_step_seconds_total", "Time spent in steps.", model_labels);
  computed_tokens = &counter("millrace_computed_tokens_total",
                             "Token rows that went through the model.", model_labels);
}

void Metrics::Impl::bind_gauges(const CacheInfo& cache) {
  running = gauges("num_requests_running", "num_requests_running", "Sequences that run.");
  waiting = gauges("num_requests_waiting", "num_requests_waiting", "Sequences that wait.");
  waiting_capacity = gauges("num_requests_waiting_by_reason", "num_requests_waiting_by_reason",
                            "Sequences that wait, by reason.", {{"reason", "capacity"}});
  waiting_deferred = gauges("num_requests_waiting_by_reason", "num_requests_waiting_by_reason",
                            "Sequences that wait, by reason.", {{"reason", "deferred"}});
  waiting_deferred.set(0.0);
  cache_usage = gauges("kv_cache_usage_ratio", "kv_cache_usage_perc",
                       "Share of the KV blocks that running sequences hold, 0 to 1.");
  gauges("cache_info", "cache_config_info", "Always 1; the labels describe the KV cache.",
         {{"block_size", std::to_string(cache.block_size)},
          {"num_gpu_blocks", std::to_string(cache.num_blocks)},
          {"cache_dtype", cache.cache_dtype},
          {"enable_prefix_caching", cache.prefix_caching ? "True" : "False"}})
      .set(1.0);
  waiting_tokens = &gauge("millrace_waiting_tokens", "Prompt tokens that wait.", model_labels);
  heartbeat_age = &gauge("millrace_engine_heartbeat_age_seconds",
                         "Time since the engine's loop last turned.", model_labels);
  no_progress = &gauge("millrace_engine_no_progress_seconds",
                       "Time for which work has waited without progress.", model_labels);
}

void Metrics::Impl::bind_histograms(int64_t max_model_len) {
  const std::vector<double> counts = token_count_buckets(max_model_len);
  first_token =
      latencies("time_to_first_token_seconds", "Arrival to first token.", first_token_buckets());
  inter_token = latencies("inter_token_latency_seconds", "Time between tokens of a sequence.",
                          per_token_buckets());
  per_output_token = latencies("request_time_per_output_token_seconds",
                               "Mean time per output token of a request.", per_token_buckets());
  e2e = latencies("e2e_request_latency_seconds", "Arrival to end.", request_time_buckets());
  queue = latencies("request_queue_time_seconds", "Waiting for the first step.",
                    request_time_buckets());
  inference =
      latencies("request_inference_time_seconds", "First step to end.", request_time_buckets());
  prefill = latencies("request_prefill_time_seconds", "First step to first token.",
                      request_time_buckets());
  decode = latencies("request_decode_time_seconds", "First to last token.", request_time_buckets());
  request_prompt =
      histograms("request_prompt_tokens", "Prompt tokens of a request.", counts, counts);
  request_generation =
      histograms("request_generation_tokens", "Generated tokens of a request.", counts, counts);
  request_max_generation =
      histograms("request_max_num_generation_tokens",
                 "Generated tokens of a request's longest choice.", counts, counts);
  params_max_tokens =
      histograms("request_params_max_tokens", "max_tokens of a request.", counts, counts);
  params_n =
      histograms("request_params_n", "n of a request.", {1, 2, 5, 10, 20}, {1, 2, 5, 10, 20});
  const std::vector<double> step_sizes(std::begin(EngineStats::kIterationBuckets),
                                       std::end(EngineStats::kIterationBuckets));
  // The own name has no _total, which the text format keeps for counters.
  HistogramPair pair;
  const auto add = [&](const std::string& name) {
    return &prometheus::BuildHistogram()
                .Name(name)
                .Help("Tokens of a step.")
                .Register(registry)
                .Add(model_labels, prometheus::Histogram::BucketBoundaries(step_sizes));
  };
  pair.own = add("millrace_iteration_tokens");
  if (aliases) pair.alias = add("vllm:iteration_tokens_total");
  iteration = pair;
}

void Metrics::http_answered(std::string_view route, int status) {
  impl_->http_family->Add({{"route", std::string(route)}, {"status", std::to_string(status)}})
      .Increment();
}

void Metrics::rejected(std::string_view reason) {
  impl_->rejected_family->Add({{"reason", std::string(reason)}}).Increment();
}

void Metrics::deadline_dropped() { impl_->deadline_total->Increment(); }

void Metrics::request_accepted() {
  ++impl_->accepted_count;
  if (impl_->accepted) impl_->accepted->Increment();
}

void Metrics::request_finished(const RequestRecord& record) {
  Impl& m = *impl_;
  ++m.finished_count;
  if (!m.bound) return m.internal_error();
  if (record.cached_tokens < 0 || record.prompt_tokens < 0) return m.internal_error();
  m.finished[record.reason].add(1.0);
  m.cached_tokens.add(static_cast<double>(record.cached_tokens));
  m.observe(m.e2e, record.e2e);
  m.observe(m.queue, record.queue);
  m.observe(m.prefill, record.prefill);
  m.observe(m.decode, record.decode);
  m.observe(m.inference, record.inference);
  if (record.decode && record.max_generated_tokens > 1) {
    m.observe(m.per_output_token,
              *record.decode / static_cast<double>(record.max_generated_tokens - 1));
  }
  m.observe(m.request_prompt, static_cast<double>(record.prompt_tokens));
  m.observe(m.request_generation, static_cast<double>(record.generated_tokens));
  m.observe(m.request_max_generation, static_cast<double>(record.max_generated_tokens));
  m.observe(m.params_max_tokens, static_cast<double>(record.max_tokens));
  m.observe(m.params_n, static_cast<double>(record.n));
}

void Metrics::time_to_first_token(double seconds) {
  if (impl_->bound) impl_->observe(impl_->first_token, seconds);
}

void Metrics::inter_token(double seconds) {
  if (impl_->bound) impl_->observe(impl_->inter_token, seconds);
}

void Metrics::start_phase(std::string_view phase, double seconds) {
  impl_->phase_family->Add({{"phase", std::string(phase)}}).Set(seconds);
}

void Metrics::log_lines_dropped(int64_t total) {
  const double more = static_cast<double>(total) - impl_->log_dropped_total->Value();
  if (more > 0.0) impl_->log_dropped_total->Increment(more);
}

int64_t Metrics::in_flight() const { return impl_->accepted_count - impl_->finished_count; }

void Metrics::Impl::update_from_engine(const EngineStats& stats) {
  follow(prefix_queries, static_cast<double>(stats.prefix_queries));
  follow(prefix_hits, static_cast<double>(stats.prefix_hits));
  follow(preemptions, static_cast<double>(stats.preemptions));
  follow(prompt_tokens, static_cast<double>(stats.prompt_tokens));
  follow(generation_tokens, static_cast<double>(stats.generated_tokens));
  const auto raise = [this](prometheus::Counter* counter, double total) {
    if (total < counter->Value()) return internal_error();
    counter->Increment(total - counter->Value());
  };
  raise(steps, static_cast<double>(stats.steps));
  raise(step_seconds, stats.step_seconds_sum);
  raise(computed_tokens, static_cast<double>(stats.computed_tokens));
  running.set(static_cast<double>(stats.running));
  waiting.set(static_cast<double>(stats.waiting));
  waiting_capacity.set(static_cast<double>(stats.waiting));
  cache_usage.set(stats.kv_blocks_total > 0 ? static_cast<double>(stats.kv_blocks_used) /
                                                  static_cast<double>(stats.kv_blocks_total)
                                            : 0.0);
  waiting_tokens->Set(static_cast<double>(stats.waiting_tokens));
  heartbeat_age->Set(stats.heartbeat_age_seconds);
  no_progress->Set(stats.no_progress_seconds);
  update_iterations(stats);
  last_stats = stats;
}

void Metrics::Impl::update_iterations(const EngineStats& stats) {
  std::vector<double> increments;
  for (size_t i = 0; i < std::size(stats.iteration_counts); ++i) {
    const int64_t more = stats.iteration_counts[i] - last_stats.iteration_counts[i];
    if (more < 0) return internal_error();
    increments.push_back(static_cast<double>(more));
  }
  const double sum = static_cast<double>(stats.computed_tokens - last_stats.computed_tokens);
  if (sum < 0.0) return internal_error();
  iteration.own->ObserveMultiple(increments, sum);
  if (iteration.alias) iteration.alias->ObserveMultiple(increments, sum);
}

void Metrics::Impl::update_process() {
  const ProcessStats stats = read_process_stats();
  if (stats.cpu_seconds > cpu_seconds_total->Value()) {
    cpu_seconds_total->Increment(stats.cpu_seconds - cpu_seconds_total->Value());
  }
  resident->Set(static_cast<double>(stats.resident_bytes));
  open_fds->Set(static_cast<double>(stats.open_fds));
  start_time->Set(stats.start_time);
}

std::string Metrics::render(const EngineStats* engine, const net::ServerStats& server) {
  Impl& m = *impl_;
  if (engine != nullptr && m.bound) m.update_from_engine(*engine);
  m.connections->Set(static_cast<double>(server.connections));
  m.exchanges->Set(static_cast<double>(server.exchanges));
  const double refused = static_cast<double>(server.refused_requests);
  if (refused > m.refused_total->Value())
    m.refused_total->Increment(refused - m.refused_total->Value());
  m.update_process();
  return prometheus::TextSerializer().Serialize(m.registry.Collect());
}

}  // namespace millrace::app
