#include "server/app/metrics.h"

#include <gtest/gtest.h>

#include <limits>
#include <regex>
#include <sstream>

#include "server/app/metric_buckets.h"

namespace millrace::app {
namespace {

EngineStats some_stats() {
  EngineStats stats;
  stats.running = 3;
  stats.waiting = 2;
  stats.kv_blocks_total = 200;
  stats.kv_blocks_used = 50;
  stats.prompt_tokens = 100;
  stats.generated_tokens = 40;
  stats.computed_tokens = 140;
  stats.iteration_counts[0] = 5;
  stats.iteration_counts[13] = 1;
  return stats;
}

double value_of(const std::string& text, const std::string& line_start) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(line_start, 0) == 0) return std::stod(line.substr(line.rfind(' ') + 1));
  }
  return std::numeric_limits<double>::quiet_NaN();
}

TEST(Metrics, ShowsTheEngineUnderBothNames) {
  Metrics metrics(/*aliases=*/true);
  metrics.bind_model("m", {.block_size = 16, .num_blocks = 200, .max_model_len = 4096});
  const EngineStats stats = some_stats();
  const std::string text = metrics.render(&stats, {});
  for (const std::string prefix : {"millrace_", "vllm:"}) {
    EXPECT_EQ(value_of(text, prefix + "num_requests_running"), 3.0);
    EXPECT_EQ(value_of(text, prefix + "num_requests_waiting{"), 2.0);
    EXPECT_EQ(value_of(text, prefix + "prompt_tokens_total"), 100.0);
    EXPECT_EQ(value_of(text, prefix + "generation_tokens_total"), 40.0);
  }
  EXPECT_EQ(value_of(text, "vllm:kv_cache_usage_perc"), 0.25);
  EXPECT_EQ(value_of(text, "vllm:iteration_tokens_total_count"), 6.0);
  EXPECT_EQ(value_of(text, "vllm:iteration_tokens_total_sum"), 140.0);
  EXPECT_NE(text.find("vllm:cache_config_info{"), std::string::npos);
  EXPECT_NE(text.find("num_gpu_blocks=\"200\""), std::string::npos);
  EXPECT_NE(text.find("model_name=\"m\""), std::string::npos);
}

TEST(Metrics, AliasesCanBeLeftOut) {
  Metrics metrics(/*aliases=*/false);
  metrics.bind_model("m", {.max_model_len = 64});
  EXPECT_EQ(metrics.render(nullptr, {}).find("vllm:"), std::string::npos);
}

TEST(Metrics, CountersNeverFallAndImpossibleValuesOnlyCount) {
  Metrics metrics(true);
  metrics.bind_model("m", {.max_model_len = 64});
  EngineStats stats = some_stats();
  metrics.render(&stats, {});
  stats.generated_tokens = -1;
  const std::string text = metrics.render(&stats, {});
  EXPECT_EQ(value_of(text, "vllm:generation_tokens_total"), 40.0);
  EXPECT_EQ(value_of(text, "millrace_internal_errors_total"), 1.0);
  metrics.inter_token(-1.0);
  metrics.time_to_first_token(std::numeric_limits<double>::quiet_NaN());
  const std::string after = metrics.render(nullptr, {});
  EXPECT_EQ(value_of(after, "millrace_internal_errors_total"), 3.0);
  EXPECT_EQ(value_of(after, "vllm:inter_token_latency_seconds_count"), 0.0);
}

TEST(Metrics, RecordsBeforeAModelIsKnownAreHarmless) {
  Metrics metrics(true);
  metrics.request_accepted();
  metrics.request_finished({});
  metrics.http_answered("/health", 200);
  EXPECT_EQ(metrics.in_flight(), 0);
  EXPECT_EQ(value_of(metrics.render(nullptr, {}), "millrace_http_requests_total"), 1.0);
}

TEST(Metrics, TheExpositionIsWellFormed) {
  Metrics metrics(true);
  metrics.bind_model("we\"ird\\name\n", {.max_model_len = 4096});
  metrics.http_answered("/v1/models", 200);
  metrics.rejected("engine_queue");
  metrics.start_phase("load", 0.5);
  const std::regex sample(
      R"re(^[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-z_]+="([^"\\]|\\.)*",?)*\})? (-?[0-9.e+-]+|\+Inf|NaN)$)re");
  std::istringstream lines(metrics.render(nullptr, {}));
  int samples = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    EXPECT_TRUE(std::regex_match(line, sample)) << line;
    ++samples;
  }
  EXPECT_GT(samples, 300);
}

TEST(MetricBuckets, AscendAndEndAtTheLimit) {
  EXPECT_EQ(token_count_buckets(100), (std::vector<double>{1, 2, 5, 10, 20, 50, 100}));
  EXPECT_EQ(token_count_buckets(64), (std::vector<double>{1, 2, 5, 10, 20, 50, 64}));
  EXPECT_EQ(token_count_buckets(1), (std::vector<double>{1}));
  EXPECT_EQ(token_count_buckets(0), (std::vector<double>{1}));
  for (const auto& bounds : {first_token_buckets(), per_token_buckets(), request_time_buckets(),
                             own_latency_buckets()}) {
    EXPECT_TRUE(std::is_sorted(bounds.begin(), bounds.end()));
  }
  EXPECT_GT(own_latency_buckets().back(), 300.0);
}

}  // namespace
}  // namespace millrace::app
