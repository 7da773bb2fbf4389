// `millrace bench engine MODEL`: what the engine does in this process, without HTTP: throughput and
// latency for each concurrency, beside the bound that this machine's memory sets.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/load/load.h"
#include "kernels/peaks.h"
#include "server/app/commands.h"
#include "server/app/local_model.h"

namespace millrace::app {
namespace {

struct BenchOptions {
  LocalModelOptions model;
  std::vector<int> concurrency = {1, 8, 32};
  int input_len = 128;
  int output_len = 128;
  int rounds = 3;
  uint64_t seed = 1;
  bool json = false;
};

// Times of one request, in seconds since the round's start.
struct Trace {
  double first = 0.0, last = 0.0;
  int tokens = 0;
};

// Collects the events of one round; written by the engine thread, waited for by the main thread.
class Round {
 public:
  void begin(int requests) {
    const std::lock_guard lock(mutex_);
    traces_.clear();
    error_.clear();
    open_ = requests;
    start_ = Clock::now();
  }
  void on_events(const std::vector<TokenEvent>& events) {
    const std::lock_guard lock(mutex_);
    const double now = seconds_between(start_, Clock::now());
    for (const TokenEvent& e : events) {
      Trace& trace = traces_[e.id];
      if (e.token >= 0) {
        if (trace.tokens++ == 0) trace.first = now;
        trace.last = now;
      }
      if (e.finish == Finish::none) continue;
      if (e.finish != Finish::length)
        error_ = e.error.empty() ? "a request was cut short" : e.error;
      if (--open_ == 0) done_.notify_one();
    }
  }
  double wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return open_ == 0; });
    return seconds_between(start_, Clock::now());
  }
  const std::map<RequestId, Trace>& traces() const { return traces_; }
  const std::string& error() const { return error_; }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  TimePoint start_;
  std::map<RequestId, Trace> traces_;
  std::string error_;
  int open_ = 0;
};

struct Row {
  int concurrency = 0;
  double output_rate = 0.0;   // tokens/s over the whole round
  double prefill_rate = 0.0;  // prompt tokens / time to the last first token
  double decode_rate = 0.0;   // tokens/s after the last first token
  double ttft_ms = 0.0;       // median
  double itl_ms = 0.0;        // mean time between tokens of a request
  double bound = 0.0;         // bytes that the decode steps had to read / stream read rate
};

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  Bench(const BenchOptions& options, const LocalModel& model, Engine& engine, Round& round,
        double stream_rate)
      : options_(options),
        memory_(model.memory()),
        vocab_(model.checkpoint().config().vocab),
        engine_(engine),
        round_(round),
        stream_rate_(stream_rate),
        random_(options.seed) {}

  StatusOr<Row> run(int concurrency) {
    std::vector<Row> rows;
    // The first round warms the caches and touches the memory.
    for (int i = 0; i <= options_.rounds; ++i) {
      MR_ASSIGN_OR_RETURN(Row row, run_round(concurrency));
      if (i > 0) rows.push_back(row);
    }
    const auto mid = [&](double Row::*field) {
      std::vector<double> values;
      for (const Row& row : rows) values.push_back(row.*field);
      return median(values);
    };
    Row out;
    out.concurrency = concurrency;
    for (double Row::*field : {&Row::output_rate, &Row::prefill_rate, &Row::decode_rate,
                               &Row::ttft_ms, &Row::itl_ms, &Row::bound})
      out.*field = mid(field);
    return out;
  }

 private:
  Request make_request() {
    Request request;
    request.id = next_id_++;
    for (int i = 0; i < options_.input_len; ++i)
      request.prompt.push_back(static_cast<Token>(random_() % static_cast<uint64_t>(vocab_)));
    request.sampling.temperature = 0.0f;
    request.stop.max_tokens = options_.output_len;
    request.stop.ignore_eos = true;
    return request;
  }

  StatusOr<Row> run_round(int concurrency) {
    std::vector<Request> requests;
    for (int i = 0; i < concurrency; ++i) requests.push_back(make_request());
    round_.begin(concurrency);
    for (Request& request : requests) MR_RETURN_IF_ERROR(engine_.submit(std::move(request)));
    const double seconds = round_.wait();
    if (!round_.error().empty()) return absl::InternalError(round_.error());
    return summarise(concurrency, seconds);
  }

  Row summarise(int concurrency, double seconds) const {
    Row row;
    row.concurrency = concurrency;
    row.output_rate = concurrency * static_cast<double>(options_.output_len) / seconds;
    std::vector<double> first, between;
    double last_first = 0.0;
    for (const auto& [id, trace] : round_.traces()) {
      first.push_back(trace.first * 1e3);
      last_first = std::max(last_first, trace.first);
      if (trace.tokens > 1)
        between.push_back((trace.last - trace.first) / (trace.tokens - 1) * 1e3);
    }
    row.ttft_ms = median(first);
    row.itl_ms = median(between);
    row.prefill_rate = concurrency * static_cast<double>(options_.input_len) / last_first;
    const double decode_seconds = seconds - last_first;
    if (decode_seconds > 0.0 && options_.output_len > 1) {
      row.decode_rate = concurrency * (options_.output_len - 1.0) / decode_seconds;
      const double context = options_.input_len + options_.output_len / 2.0;
      const double step_bytes =
          static_cast<double>(memory_.weight_bytes) +
          concurrency * context * static_cast<double>(memory_.kv_bytes_per_token);
      row.bound = row.decode_rate / concurrency * step_bytes / stream_rate_;
    }
    return row;
  }

  const BenchOptions& options_;
  const MemoryPlan memory_;
  const int64_t vocab_;
  Engine& engine_;
  Round& round_;
  const double stream_rate_;
  std::mt19937_64 random_;
  RequestId next_id_ = 1;
};

void print_json(const BenchOptions& o, double stream_rate, const std::vector<Row>& rows) {
  nlohmann::ordered_json out = {{"input_len", o.input_len},
                                {"output_len", o.output_len},
                                {"rounds", o.rounds},
                                {"stream_read_gb_s", stream_rate / 1e9},
                                {"rows", nlohmann::ordered_json::array()}};
  for (const Row& r : rows)
    out["rows"].push_back({{"concurrency", r.concurrency},
                           {"output_tokens_per_s", r.output_rate},
                           {"prefill_tokens_per_s", r.prefill_rate},
                           {"decode_tokens_per_s", r.decode_rate},
                           {"ttft_ms", r.ttft_ms},
                           {"itl_ms", r.itl_ms},
                           {"decode_bandwidth_ratio", r.bound}});
  std::printf("%s\n", out.dump(2).c_str());
}

int run_engine_bench(const BenchOptions& o) {
  const auto fail = [](const Status& status) {
    std::fprintf(stderr, "millrace bench: %s\n", status_message(status).c_str());
    return 1;
  };
  const Pool pool(o.model.threads > 0 ? o.model.threads : available_cpus());
  const double stream_rate = measure_stream_read(pool, int64_t{1} << 29, 5).median;
  auto model = LocalModel::load(o.model, {});
  if (!model.ok()) return fail(model.status());
  Round round;
  auto engine = (*model)->start_engine(
      [&round](std::vector<TokenEvent>&& events) { round.on_events(events); });
  if (!engine.ok()) return fail(engine.status());

  if (!o.json) {
    std::printf(
        "%s, %d in / %d out, greedy, median of %d rounds, %d threads; stream read %.1f GB/s\n",
        (*model)->checkpoint().model_name().c_str(), o.input_len, o.output_len, o.rounds,
        pool.size(), stream_rate / 1e9);
    std::printf("%11s %12s %12s %12s %9s %9s %16s\n", "concurrency", "output tok/s",
                "prefill tok/s", "decode tok/s", "TTFT ms", "ITL ms", "bytes / stream");
  }
  Bench bench(o, **model, **engine, round, stream_rate);
  std::vector<Row> rows;
  for (const int concurrency : o.concurrency) {
    const StatusOr<Row> row = bench.run(concurrency);
    if (!row.ok()) return fail(row.status());
    rows.push_back(*row);
    if (!o.json) {
      std::printf("%11d %12.1f %13.1f %12.1f %9.1f %9.2f %15.0f%%\n", row->concurrency,
                  row->output_rate, row->prefill_rate, row->decode_rate, row->ttft_ms, row->itl_ms,
                  row->bound * 100.0);
      std::fflush(stdout);
    }
  }
  if (o.json) print_json(o, stream_rate, rows);
  return 0;
}

}  // namespace

void add_bench_engine(CLI::App& bench, CommandResult& result) {
  CLI::App* engine = bench.add_subcommand("engine", "Throughput and latency in this process");
  auto options = std::make_shared<BenchOptions>();
  options->model.enable_prefix_caching = false;
  add_local_model_options(*engine, options->model);
  engine->add_option("--concurrency", options->concurrency, "Requests at once, one row for each")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  engine->add_option("--input-len", options->input_len, "Prompt tokens of each request")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  engine->add_option("--output-len", options->output_len, "Generated tokens of each request")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  engine->add_option("--rounds", options->rounds, "Measured rounds after one to warm up")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  engine->add_option("--bench-seed", options->seed, "Seed of the random prompts")
      ->capture_default_str();
  engine->add_flag("--json", options->json, "Print JSON");
  engine->callback(
      [options, &result] { result.run = [options] { return run_engine_bench(*options); }; });
}

}  // namespace millrace::app
