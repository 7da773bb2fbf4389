// `millrace bench serve`: load against any OpenAI-compatible endpoint, and what its users would
// have seen.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "server/app/commands.h"
#include "server/app/progress_bar.h"
#include "server/bench/load_client.h"
#include "server/bench/load_report.h"
#include "server/bench/load_run.h"
#include "server/bench/load_summary.h"
#include "server/bench/workload.h"

namespace millrace::app {
namespace {

using Json = nlohmann::ordered_json;

struct ServeBenchOptions {
  std::string base_url = "http://127.0.0.1:8000";
  std::string api_key;
  std::string label;
  std::string save_result;
  std::string html;
  std::vector<std::string> compare;
  std::vector<std::string> goodput;
  bench::WorkloadOptions workload;
  bench::RunOptions run;
  bench::SummaryOptions summary;
  int max_concurrency = 0;  // 0: as many as are due
  int num_warmups = 0;
  bool warm_prefix = false;
};

constexpr std::chrono::seconds kModelsTimeout{30};

StatusOr<std::string> first_model(const bench::Target& target) {
  MR_ASSIGN_OR_RETURN(const std::string body,
                      bench::http_get(target, "/v1/models", kModelsTimeout));
  const Json json = Json::parse(body, nullptr, false);
  const Json::json_pointer id("/data/0/id");
  if (!json.is_object() || !json.contains(id) || !json[id].is_string())
    return absl::UnavailableError("GET " + target.url + "/v1/models names no model; give --model.");
  return json[id].get<std::string>();
}

Json describe(const ServeBenchOptions& o, size_t requests) {
  const bench::WorkloadOptions& w = o.workload;
  Json out = {{"num_prompts", requests}};
  if (!w.trace.empty()) {
    out["trace"] = w.trace;
  } else {
    out["endpoint"] = w.endpoint;
    out["random_input_len"] = w.random_input_len;
    out["random_output_len"] = w.random_output_len;
    out["random_prefix_len"] = w.random_prefix_len;
    out["warm_prefix"] = o.warm_prefix;
    out["vocab_size"] = w.vocab_size;
    if (!w.extra_body.empty()) out["extra_body"] = Json::parse(w.extra_body);
  }
  out["ignore_eos"] = w.ignore_eos ? Json(*w.ignore_eos) : Json(w.trace.empty());
  out["seed"] = w.seed;
  out["max_concurrency"] = o.max_concurrency > 0 ? Json(o.max_concurrency) : Json();
  out["request_rate"] = std::isfinite(w.request_rate) ? Json(w.request_rate) : Json("inf");
  out["burstiness"] = w.burstiness;
  out["num_warmups"] = o.num_warmups;
  return out;
}

// Before the run, so that a long one does not end without a place for its result.
Status check_writable(const std::string& flag, const std::string& path) {
  if (path.empty() || std::ofstream(path, std::ios::app)) return absl::OkStatus();
  return absl::InvalidArgumentError(flag + " " + path + " cannot be written.");
}

Status write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text << std::flush;
  if (file) return absl::OkStatus();
  return absl::InternalError(path + " could not be written.");
}

StatusOr<bench::RunResult> run_workload(const ServeBenchOptions& o, const bench::Target& target,
                                        const bench::Workload& workload) {
  bench::RunOptions options = o.run;
  if (o.max_concurrency > 0) options.max_concurrency = o.max_concurrency;
  if (!workload.warmups.empty()) {
    const bench::RunResult warm = bench::run_load(target, workload.warmups, options);
    for (const bench::RequestResult& request : warm.requests)
      if (request.finished && !request.ok())
        return absl::UnavailableError("A request to warm up failed (" + request.answer.failure +
                                      "): " + request.answer.message + ".");
    if (warm.interrupted) return warm;
  }
  ProgressBar bar("requests");
  options.on_progress = [&bar](size_t done, size_t total) { bar.update(done, total); };
  return bench::run_load(target, workload.requests, options);
}

// Several results that were saved, without a run.
StatusOr<int> compare_results(const ServeBenchOptions& o) {
  std::vector<bench::SavedResult> results;
  for (const std::string& path : o.compare) {
    MR_ASSIGN_OR_RETURN(bench::SavedResult result, bench::read_result(path));
    results.push_back(std::move(result));
  }
  std::fputs(bench::comparison_text(results).c_str(), stdout);
  if (!o.html.empty()) MR_RETURN_IF_ERROR(write_file(o.html, bench::report_html(results)));
  return 0;
}

// The exit code: 0 only if every request was answered in full.
StatusOr<int> run_serve_bench(ServeBenchOptions o) {
  MR_ASSIGN_OR_RETURN(o.summary.goodput, bench::parse_goodput(o.goodput));
  MR_RETURN_IF_ERROR(check_writable("--save-result", o.save_result));
  MR_RETURN_IF_ERROR(check_writable("--html", o.html));
  if (!o.compare.empty()) return compare_results(o);
  MR_ASSIGN_OR_RETURN(const bench::Target target, bench::resolve_target(o.base_url, o.api_key));
  if (o.workload.model.empty()) {
    MR_ASSIGN_OR_RETURN(o.workload.model, first_model(target));
  }
  MR_ASSIGN_OR_RETURN(const bench::Workload workload,
                      bench::make_workload(o.workload, o.num_warmups, o.warm_prefix));
  const size_t count = workload.requests.size();
  if (workload.requests.back().due_s == 0.0)
    o.summary.first_wave = static_cast<int>(
        o.max_concurrency > 0 ? std::min(count, static_cast<size_t>(o.max_concurrency)) : count);
  MR_ASSIGN_OR_RETURN(const bench::RunResult run, run_workload(o, target, workload));

  const bench::Summary summary = bench::summarise(run, o.summary);
  const bench::RunLabel label{o.label, target.url, o.workload.model, describe(o, count)};
  std::fputs(bench::summary_text(label, summary, o.summary).c_str(), stdout);
  Json json = bench::summary_json(label, summary, o.summary, run);
  if (!o.save_result.empty())
    MR_RETURN_IF_ERROR(
        write_file(o.save_result, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"));
  if (!o.html.empty()) {
    const std::string name = o.label.empty() ? o.workload.model : o.label;
    MR_RETURN_IF_ERROR(write_file(o.html, bench::report_html({{name, std::move(json)}})));
  }
  if (summary.interrupted) return 130;
  return summary.clean() ? 0 : 1;
}

void add_workload_options(CLI::App& app, ServeBenchOptions& o) {
  bench::WorkloadOptions& w = o.workload;
  const auto count = CLI::Range(0, 1 << 24);
  const auto positive = CLI::Range(1, 1 << 24);
  app.add_option("--endpoint", w.endpoint, "/v1/completions or /v1/chat/completions")
      ->capture_default_str();
  app.add_option("--num-prompts", w.num_prompts,
                 "Requests to measure; default 1000, or all rows of the trace")
      ->check(positive);
  CLI::Option* input =
      app.add_option("--random-input-len", w.random_input_len,
                     "Random token ids of each prompt (for chat: words, about a token each)")
          ->check(positive)
          ->capture_default_str();
  CLI::Option* output = app.add_option("--random-output-len", w.random_output_len,
                                       "Tokens of each answer (max_tokens)")
                            ->check(positive)
                            ->capture_default_str();
  CLI::Option* prefix =
      app.add_option("--random-prefix-len", w.random_prefix_len,
                     "Token ids that all prompts share, before those of --random-input-len")
          ->check(count)
          ->capture_default_str();
  CLI::Option* vocab = app.add_option("--vocab-size", w.vocab_size,
                                      "Random token ids are drawn from 100 up to this, exclusive")
                           ->check(positive)
                           ->capture_default_str();
  CLI::Option* extra =
      app.add_option("--extra-body", w.extra_body,
                     "JSON object with more fields of every request, such as "
                     "{\"temperature\": 0.8}; sampling is greedy otherwise");
  app.add_option("--trace", w.trace,
                 "JSONL file of request bodies to send instead of random prompts; a row's "
                 "\"arrival_s\" is when it is due, in seconds after the start")
      ->excludes(input, output, prefix, vocab, extra);
  app.add_flag_function(
      "--ignore-eos,!--no-ignore-eos", [&w](int64_t times) { w.ignore_eos = times > 0; },
      "Send ignore_eos and min_tokens, so that answers have their full length (on for random "
      "prompts; a trace says it row by row)");
  app.add_option("--seed", w.seed, "Seed of prompts and arrivals")->capture_default_str();
  app.add_option("--request-rate", w.request_rate,
                 "Requests per second, started without waiting for answers; inf: all at once")
      ->capture_default_str();
  app.add_option("--burstiness", w.burstiness,
                 "Shape of the gamma distribution between arrivals; 1: a Poisson process, less: "
                 "more bursts")
      ->capture_default_str();
}

void add_run_options(CLI::App& app, ServeBenchOptions& o) {
  const auto count = CLI::Range(0, 1 << 24);
  app.add_option("--max-concurrency", o.max_concurrency,
                 "Requests that may run at once; 0: any number")
      ->check(count)
      ->capture_default_str();
  app.add_option("--num-warmups", o.num_warmups,
                 "Requests of the same kind that are sent before and not measured")
      ->check(count)
      ->capture_default_str();
  app.add_flag(
      "--warm-prefix", o.warm_prefix,
      "Send the shared prefix once before, so that every measured request finds it cached");
  app.add_option("--timeout", o.run.timeout_s, "Seconds that one request may take")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
}

void add_report_options(CLI::App& app, ServeBenchOptions& o) {
  app.add_option("--goodput", o.goodput,
                 "Bounds in milliseconds that a good request keeps: ttft:MS tpot:MS e2el:MS")
      ->expected(1, 3);
  app.add_option("--percentiles,--metric-percentiles", o.summary.percentiles,
                 "Percentiles of each latency, with commas between")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  app.add_option("--label", o.label, "A name for this run in the results");
  app.add_option("--save-result", o.save_result, "File to write the result to, as JSON");
  app.add_option("--html", o.html, "File to write a page with plots to, complete in itself");
  app.add_option("--compare", o.compare,
                 "Send nothing; print these saved results side by side, with ratios to the first, "
                 "and plot them with --html")
      ->expected(1, 64);
}

}  // namespace

void add_bench_serve(CLI::App& bench, CommandResult& result) {
  CLI::App* serve = bench.add_subcommand(
      "serve", "Load on an OpenAI-compatible server, and the latencies that its users see");
  auto options = std::make_shared<ServeBenchOptions>();
  serve->add_option("--base-url", options->base_url, "http://host[:port][/prefix]")
      ->capture_default_str();
  serve->add_option("--model", options->workload.model,
                    "Model to ask for; default: the first of GET /v1/models");
  serve->add_option("--api-key", options->api_key, "Sent as a bearer token")
      ->envname("OPENAI_API_KEY");
  add_workload_options(*serve, *options);
  add_run_options(*serve, *options);
  add_report_options(*serve, *options);
  serve->callback([options, &result] {
    result.run = [options] {
      const StatusOr<int> code = run_serve_bench(*options);
      if (code.ok()) return *code;
      std::fprintf(stderr, "millrace bench serve: %s\n", status_message(code.status()).c_str());
      return 1;
    };
  });
}

}  // namespace millrace::app
