#include "server/bench/load_report.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>

#include "server/bench/load_plot.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kCurvePoints = 200;
constexpr double kTimeBins = 100.0;
// Several steps of any server, so that the curve shows the rate and not the steps.
constexpr double kBinSeconds = 0.25;

struct Figure {
  std::string name;
  Json::json_pointer at;
};

// Those that the first result has a number for.
std::vector<Figure> figures(const Json& first) {
  std::vector<Figure> out;
  const auto add = [&](const std::string& name, const std::string& at) {
    const Json::json_pointer pointer(at);
    if (first.contains(pointer) && first[pointer].is_number()) out.push_back({name, pointer});
  };
  add("requests/s", "/request_per_s");
  add("output tok/s", "/output_tokens_per_s");
  add("total tok/s", "/total_tokens_per_s");
  add("prefill tok/s", "/prefill_tokens_per_s");
  add("good requests/s", "/goodput_request_per_s");
  for (const auto& [name, key] :
       {std::pair{"TTFT", "ttft_ms"}, {"TPOT", "tpot_ms"}, {"ITL", "itl_ms"}, {"E2E", "e2e_ms"}})
    for (const auto& [column, value] : first[key].items())
      add(std::string(name) + " " + column + ", ms", "/" + std::string(key) + "/" + column);
  add("completed", "/completed");
  add("failed", "/failed");
  add("short", "/short");
  add("duration, s", "/duration_s");
  return out;
}

// "712.3", and "x1.34" behind it where there is a base to compare with.
std::pair<std::string, std::string> cell(const Json& json, const Figure& figure, const Json* base) {
  if (!json.contains(figure.at) || !json[figure.at].is_number()) return {"-", ""};
  const double value = json[figure.at].get<double>();
  char text[32], ratio[32] = "";
  std::snprintf(text, sizeof(text), json[figure.at].is_number_integer() ? "%.0f" : "%.2f", value);
  const double of = base ? (*base)[figure.at].get<double>() : 0.0;
  if (of > 0.0) std::snprintf(ratio, sizeof(ratio), "x%.2f", value / of);
  return {text, ratio};
}

std::string table_html(const std::vector<SavedResult>& results) {
  std::string out = "<table>\n<tr><th></th>";
  for (size_t i = 0; i < results.size(); ++i)
    out += "<th style=\"color:" + plot_color(i) + "\">" + escape_html(results[i].name) + "</th>";
  const auto row = [&](const std::string& name, const std::function<std::string(size_t)>& of) {
    out += "</tr>\n<tr><th>" + escape_html(name) + "</th>";
    for (size_t i = 0; i < results.size(); ++i) out += "<td>" + of(i) + "</td>";
  };
  for (const char* key : {"model", "base_url"})
    row(key, [&](size_t i) { return escape_html(results[i].json.value(key, "")); });
  const Json& first = results.front().json;
  const Json workload_of_first = first.value("workload", Json::object());
  for (const auto& [key, value] : workload_of_first.items())
    row(key, [&, name = key](size_t i) {
      const Json workload = results[i].json.value("workload", Json::object());
      return workload.contains(name)
                 ? escape_html(workload[name].dump(-1, ' ', false, Json::error_handler_t::replace))
                 : "-";
    });
  for (const Figure& figure : figures(first))
    row(figure.name, [&](size_t i) {
      const auto [value, ratio] = cell(results[i].json, figure, i > 0 ? &first : nullptr);
      return value + (ratio.empty() ? "" : " <small>" + ratio + "</small>");
    });
  return out + "</tr>\n</table>\n";
}

// The share of values that are at most x.
Series distribution(const std::string& name, std::vector<double> values) {
  Series out{name, {}};
  std::sort(values.begin(), values.end());
  const size_t points = std::min(values.size(), kCurvePoints);
  for (size_t i = 0; i < points; ++i) {
    const size_t rank = points == 1 ? 0 : i * (values.size() - 1) / (points - 1);
    out.points.emplace_back(
        values[rank], 100.0 * static_cast<double>(rank + 1) / static_cast<double>(values.size()));
  }
  return out;
}

// What the plots need of the requests that completed.
struct Samples {
  std::vector<double> ttft_ms, tpot_ms, itl_ms;
  std::vector<std::pair<double, double>> tokens;  // when, how many
};

Samples samples_of(const Json& json) {
  Samples out;
  for (const Json& request : json["requests"]) {
    if (!request.is_object() || !request.contains("ttft_ms")) continue;
    const double ttft = request.value("ttft_ms", 0.0);
    const double tokens = request.value("tokens", 0.0);
    const Json gaps = request.value("itl_ms", Json::array());
    out.ttft_ms.push_back(ttft);
    if (tokens > 1.0) out.tpot_ms.push_back((request.value("e2e_ms", 0.0) - ttft) / (tokens - 1.0));
    const double share = tokens / static_cast<double>(gaps.size() + 1);  // of one chunk
    double now = request.value("start_s", 0.0) + ttft / 1e3;
    out.tokens.emplace_back(now, share);
    for (const Json& gap : gaps) {
      if (!gap.is_number()) continue;
      out.itl_ms.push_back(gap.get<double>());
      now += gap.get<double>() / 1e3;
      out.tokens.emplace_back(now, share);
    }
  }
  return out;
}

Series rate_over_time(const std::string& name, const Samples& samples) {
  Series out{name, {}};
  double end = 0.0;
  for (const auto& [time, tokens] : samples.tokens) end = std::max(end, time);
  if (!(end > 0.0)) return out;
  std::vector<double> sums(static_cast<size_t>(std::clamp(end / kBinSeconds, 1.0, kTimeBins)), 0.0);
  const double bin = end / static_cast<double>(sums.size());
  for (const auto& [time, tokens] : samples.tokens)
    sums[std::min(static_cast<size_t>(time / bin), sums.size() - 1)] += tokens;
  for (size_t i = 0; i < sums.size(); ++i)
    out.points.emplace_back((static_cast<double>(i) + 0.5) * bin, sums[i] / bin);
  return out;
}

std::string plots_html(const std::vector<SavedResult>& results) {
  std::vector<Series> rate, ttft, tpot, itl;
  for (const SavedResult& result : results) {
    const Samples samples = samples_of(result.json);
    rate.push_back(rate_over_time(result.name, samples));
    ttft.push_back(distribution(result.name, samples.ttft_ms));
    tpot.push_back(distribution(result.name, samples.tpot_ms));
    itl.push_back(distribution(result.name, samples.itl_ms));
  }
  const auto shares = [](const char* title) {
    return Plot{title, "ms (log scale)", "% of all", true, 100.0};
  };
  std::string legend = "<p>";
  for (size_t i = 0; i < results.size(); ++i)
    legend += "<b style=\"color:" + plot_color(i) + "\">&#9632; " + escape_html(results[i].name) +
              "</b> &nbsp; ";
  return legend + "</p>\n" +
         plot_svg({"Output over time", "seconds since the start", "tok/s"}, rate) +
         plot_svg(shares("Time to first token (TTFT): share within"), ttft) +
         plot_svg(shares("Time per output token (TPOT): share within"), tpot) +
         plot_svg(shares("Time between chunks (ITL): share within"), itl);
}

}  // namespace

StatusOr<SavedResult> read_result(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(path + " cannot be read.");
  SavedResult out;
  out.json = Json::parse(file, nullptr, false);
  bool legal =
      out.json.is_object() && out.json.contains("requests") && out.json["requests"].is_array();
  for (const char* key : {"ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"})
    legal = legal && out.json.contains(key) && out.json[key].is_object();
  if (!legal)
    return absl::InvalidArgumentError(path +
                                      " is no result that `bench serve --save-result` wrote.");
  if (out.json.contains("label") && out.json["label"].is_string())
    out.name = out.json["label"].get<std::string>();
  if (out.name.empty()) out.name = std::filesystem::path(path).stem().string();
  return out;
}

std::string comparison_text(const std::vector<SavedResult>& results) {
  std::string out;
  char text[256];
  const auto append = [&](const char* format, const char* value) {
    std::snprintf(text, sizeof(text), format, value);
    out += text;
  };
  append("%-16s", "");
  for (const SavedResult& result : results) append(" %20.20s", result.name.c_str());
  out += '\n';
  const Json& first = results.front().json;
  for (const Figure& figure : figures(first)) {
    append("%-16s", figure.name.c_str());
    for (size_t i = 0; i < results.size(); ++i) {
      const auto [value, ratio] = cell(results[i].json, figure, i > 0 ? &first : nullptr);
      append(" %20s", (ratio.empty() ? value : value + " " + ratio).c_str());
    }
    out += '\n';
  }
  return out;
}

std::string report_html(const std::vector<SavedResult>& results) {
  return "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
         "<title>millrace bench serve</title>\n<style>\n"
         "body { font: 14px sans-serif; margin: 2em auto; max-width: 1180px; padding: 0 1em; }\n"
         "svg { width: 560px; max-width: 100%; font-size: 12px; }\n"
         "svg line { stroke: #ddd; } svg polyline { fill: none; stroke-width: 1.6; }\n"
         "td, th { padding: 2px 14px; text-align: right; } th:first-child { text-align: left; }\n"
         "tr:nth-child(even) { background: #f6f6f6; } small { color: #777; }\n"
         "</style>\n<h1>millrace bench serve</h1>\n" +
         plots_html(results) + table_html(results) + "</html>\n";
}

}  // namespace millrace::bench
