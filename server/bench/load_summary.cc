#include "server/bench/load_summary.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;

// Microseconds are as far as these times can be trusted, and keep the file small.
double rounded(double value) { return std::round(value * 1e3) / 1e3; }

std::string percentile_name(double p) {
  char text[32];
  std::snprintf(text, sizeof(text), "p%g", p);
  return text;
}

[[gnu::format(printf, 2, 3)]] void append_format(std::string& out, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  out += text;
}

bool is_good(const Answer& a, const Goodput& goodput) {
  const auto within = [](double value, double bound) { return bound <= 0.0 || value <= bound; };
  return within(a.first_s * 1e3, goodput.ttft_ms) && within(a.tpot_s() * 1e3, goodput.tpot_ms) &&
         within(a.e2e_s() * 1e3, goodput.e2e_ms);
}

double prefill_rate(const RunResult& run, int first_wave) {
  double last_first = 0.0;
  int64_t tokens = 0;
  for (size_t i = 0; i < std::min(run.requests.size(), static_cast<size_t>(first_wave)); ++i) {
    const RequestResult& request = run.requests[i];
    if (!request.ok()) return 0.0;
    tokens += request.prompt_tokens;
    last_first = std::max(last_first, request.start_s + request.answer.first_s);
  }
  return last_first > 0.0 ? static_cast<double>(tokens) / last_first : 0.0;
}

Json spread_json(const Spread& spread) {
  Json out = {{"mean", rounded(spread.mean)}, {"min", rounded(spread.min)}};
  for (const auto& [name, value] : spread.percentiles) out[name] = rounded(value);
  out["max"] = rounded(spread.max);
  return out;
}

Json request_json(const RequestResult& request) {
  const Answer& a = request.answer;
  Json out = {{"start_s", rounded(request.start_s)}};
  if (!request.finished) {
    out["error"] = "unfinished";
  } else if (!request.ok()) {
    out["error"] = a.failure;
  } else {
    out["ttft_ms"] = rounded(a.first_s * 1e3);
    out["e2e_ms"] = rounded(a.e2e_s() * 1e3);
    out["prompt_tokens"] = request.prompt_tokens;
    out["tokens"] = a.tokens;
    out["itl_ms"] = Json::array();
    for (const double gap : a.gaps_s) out["itl_ms"].push_back(rounded(gap * 1e3));
  }
  return out;
}

void append_spread(std::string& out, const char* name, const Spread& spread) {
  append_format(out, "%-8s %10.2f", name, spread.mean);
  for (const auto& [key, value] : spread.percentiles) append_format(out, " %10.2f", value);
  append_format(out, " %10.2f\n", spread.max);
}

void append_latencies(std::string& out, const Summary& s) {
  append_format(out, "%-8s %10s", "ms", "mean");
  for (const auto& [name, value] : s.ttft_ms.percentiles) append_format(out, " %10s", name.c_str());
  append_format(out, " %10s\n", "max");
  append_spread(out, "TTFT", s.ttft_ms);
  append_spread(out, "TPOT", s.tpot_ms);
  append_spread(out, "ITL", s.itl_ms);
  append_spread(out, "E2E", s.e2e_ms);
}

void append_errors(std::string& out, const Summary& s) {
  if (s.interrupted) append_format(out, "interrupted: %d requests not finished\n", s.unfinished);
  if (s.short_answers > 0)
    append_format(out, "short: %d answers had fewer tokens than was asked for\n", s.short_answers);
  if (s.resent > 0)
    append_format(out, "resent: %d requests, whose idle connections the server closed\n", s.resent);
  for (const auto& [name, count] : s.errors) {
    append_format(out, "error %s: %d requests", name.c_str(), count);
    const auto first = s.first_error.find(name);
    if (first != s.first_error.end() && !first->second.empty())
      out += ", the first: " + first->second;
    out += '\n';
  }
}

}  // namespace

StatusOr<Goodput> parse_goodput(const std::vector<std::string>& bounds) {
  Goodput out;
  for (const std::string& bound : bounds) {
    const size_t colon = bound.find(':');
    const std::string name = bound.substr(0, colon);
    double* field = name == "ttft"   ? &out.ttft_ms
                    : name == "tpot" ? &out.tpot_ms
                    : name == "e2el" ? &out.e2e_ms
                                     : nullptr;
    const std::string number = colon == std::string::npos ? "" : bound.substr(colon + 1);
    char* end = nullptr;
    const double value = std::strtod(number.c_str(), &end);
    if (!field || number.empty() || *end != '\0' || !(value > 0.0) || !std::isfinite(value))
      return absl::InvalidArgumentError("--goodput has " + bound +
                                        "; legal are ttft:MS, tpot:MS and e2el:MS, MS above 0.");
    *field = value;
  }
  return out;
}

double percentile(const std::vector<double>& sorted, double p) {
  const double rank = p / 100.0 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (rank - static_cast<double>(below));
}

Spread spread_of(std::vector<double> values, const std::vector<double>& percentiles) {
  Spread out;
  std::sort(values.begin(), values.end());
  if (!values.empty()) {
    for (const double value : values) out.mean += value / static_cast<double>(values.size());
    out.min = values.front();
    out.max = values.back();
  }
  for (const double p : percentiles)
    out.percentiles.emplace_back(percentile_name(p), values.empty() ? 0.0 : percentile(values, p));
  return out;
}

Summary summarise(const RunResult& run, const SummaryOptions& options) {
  Summary s;
  std::vector<double> ttft, tpot, itl, e2e;
  int good = 0;
  for (const RequestResult& request : run.requests) {
    const Answer& a = request.answer;
    ++s.sent;
    if (!request.finished) {
      ++s.unfinished;
      continue;
    }
    s.resent += request.resent ? 1 : 0;
    if (!request.ok()) {
      ++s.failed;
      ++s.errors[a.failure];
      s.first_error.emplace(a.failure, a.message);
      continue;
    }
    ++s.completed;
    s.short_answers += request.is_short() ? 1 : 0;
    good += is_good(a, options.goodput) ? 1 : 0;
    s.prompt_tokens += request.prompt_tokens;
    s.cached_tokens += a.cached_tokens;
    s.output_tokens += a.tokens;
    ttft.push_back(a.first_s * 1e3);
    e2e.push_back(a.e2e_s() * 1e3);
    if (a.tokens > 1) tpot.push_back(a.tpot_s() * 1e3);
    for (const double gap : a.gaps_s) itl.push_back(gap * 1e3);
  }
  s.duration_s = run.duration_s;
  s.peak_concurrency = run.peak_concurrency;
  s.interrupted = run.interrupted;
  if (run.duration_s > 0.0) {
    s.request_rate = s.completed / run.duration_s;
    s.good_rate = good / run.duration_s;
    s.output_rate = static_cast<double>(s.output_tokens) / run.duration_s;
    s.total_rate = static_cast<double>(s.output_tokens + s.prompt_tokens) / run.duration_s;
    s.generator_cpu_percent = run.generator_cpu_s / run.duration_s * 100.0;
  }
  s.prefill_rate = prefill_rate(run, options.first_wave);
  s.ttft_ms = spread_of(std::move(ttft), options.percentiles);
  s.tpot_ms = spread_of(std::move(tpot), options.percentiles);
  s.itl_ms = spread_of(std::move(itl), options.percentiles);
  s.e2e_ms = spread_of(std::move(e2e), options.percentiles);
  return s;
}

std::string summary_text(const RunLabel& label, const Summary& s, const SummaryOptions& options) {
  std::string out;
  out += label.model + " at " + label.base_url + (label.label.empty() ? "" : ", ") + label.label +
         "\n";
  append_format(out,
                "%d of %d requests in %.2f s, at most %d at once, prompts %lld tokens (%lld from a "
                "cache), answers %lld\n",
                s.completed, s.sent, s.duration_s, s.peak_concurrency,
                static_cast<long long>(s.prompt_tokens), static_cast<long long>(s.cached_tokens),
                static_cast<long long>(s.output_tokens));
  append_format(out, "%.2f requests/s, %.1f output tok/s, %.1f total tok/s", s.request_rate,
                s.output_rate, s.total_rate);
  if (s.prefill_rate > 0.0) append_format(out, ", %.1f prefill tok/s", s.prefill_rate);
  if (options.goodput.asked()) append_format(out, ", %.2f good requests/s", s.good_rate);
  append_format(out, "; this generator used %.2f %% of a core\n\n", s.generator_cpu_percent);
  if (s.completed > 0) append_latencies(out, s);
  append_errors(out, s);
  return out;
}

Json summary_json(const RunLabel& label, const Summary& s, const SummaryOptions& options,
                  const RunResult& run) {
  Json out = {{"label", label.label},
              {"base_url", label.base_url},
              {"model", label.model},
              {"workload", label.workload},
              {"duration_s", rounded(s.duration_s)},
              {"interrupted", s.interrupted},
              {"completed", s.completed},
              {"failed", s.failed},
              {"unfinished", s.unfinished},
              {"errors", s.errors},
              {"first_errors", s.first_error},
              {"short", s.short_answers},
              {"resent", s.resent},
              {"peak_concurrency", s.peak_concurrency},
              {"prompt_tokens", s.prompt_tokens},
              {"cached_prompt_tokens", s.cached_tokens},
              {"output_tokens", s.output_tokens},
              {"output_tokens_per_s", rounded(s.output_rate)},
              {"total_tokens_per_s", rounded(s.total_rate)},
              {"request_per_s", rounded(s.request_rate)}};
  out["prefill_tokens_per_s"] = s.prefill_rate > 0.0 ? Json(rounded(s.prefill_rate)) : Json();
  for (const auto& [name, spread] : {std::pair{"ttft_ms", &s.ttft_ms},
                                     {"tpot_ms", &s.tpot_ms},
                                     {"itl_ms", &s.itl_ms},
                                     {"e2e_ms", &s.e2e_ms}})
    out[name] = spread_json(*spread);
  out["goodput_request_per_s"] = options.goodput.asked() ? Json(rounded(s.good_rate)) : Json();
  out["generator_cpu_percent"] = rounded(s.generator_cpu_percent);
  out["requests"] = Json::array();
  for (const RequestResult& request : run.requests)
    out["requests"].push_back(request_json(request));
  return out;
}

}  // namespace millrace::bench
