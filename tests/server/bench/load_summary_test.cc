#include "server/bench/load_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::bench {
namespace {

using testing::HasSubstr;

// `tokens` chunks, the first after `first_s`, then one every `gap_s`.
RequestResult answered(double start_s, double first_s, double gap_s, int tokens) {
  RequestResult out;
  out.finished = true;
  out.start_s = start_s;
  out.prompt_tokens = 10;
  out.answer.first_s = out.answer.last_s = first_s;
  out.answer.tokens = tokens;
  for (int i = 1; i < tokens; ++i) {
    out.answer.gaps_s.push_back(gap_s);
    out.answer.last_s += gap_s;
  }
  return out;
}

RequestResult failed(std::string failure, std::string message) {
  RequestResult out = answered(0.0, 0.1, 0.1, 3);
  out.answer.failure = std::move(failure);
  out.answer.message = std::move(message);
  return out;
}

TEST(Percentile, IsLinearBetweenRanks) {
  const std::vector<double> values = {1, 2, 4, 8, 16};
  EXPECT_DOUBLE_EQ(percentile(values, 0), 1);
  EXPECT_DOUBLE_EQ(percentile(values, 50), 4);
  EXPECT_DOUBLE_EQ(percentile(values, 90), 12.8);  // rank 3.6
  EXPECT_DOUBLE_EQ(percentile(values, 100), 16);
  EXPECT_DOUBLE_EQ(percentile({3}, 99), 3);
  const Spread spread = spread_of({16, 2, 8, 1, 4}, {50, 99.9});
  EXPECT_DOUBLE_EQ(spread.mean, 6.2);
  EXPECT_DOUBLE_EQ(spread.min, 1);
  EXPECT_DOUBLE_EQ(spread.max, 16);
  EXPECT_EQ(spread.percentiles[0], (std::pair<std::string, double>("p50", 4)));
  EXPECT_EQ(spread.percentiles[1].first, "p99.9");
  EXPECT_EQ(spread_of({}, {50}).percentiles[0].second, 0.0);
}

TEST(Summary, FollowsTheDefinitions) {
  RunResult run;
  run.requests = {answered(0.0, 0.2, 0.01, 11), answered(0.0, 0.4, 0.03, 21),
                  failed("http_429", "too many"), answered(0.5, 0.3, 0.02, 1)};
  run.duration_s = 2.0;
  run.generator_cpu_s = 0.01;
  run.peak_concurrency = 3;
  SummaryOptions options;
  options.first_wave = 2;
  options.goodput = {.ttft_ms = 350};
  const Summary s = summarise(run, options);
  EXPECT_EQ(s.completed, 3);
  EXPECT_EQ(s.failed, 1);
  EXPECT_EQ(s.errors, (std::map<std::string, int>{{"http_429", 1}}));
  EXPECT_EQ(s.output_tokens, 33);
  EXPECT_DOUBLE_EQ(s.output_rate, 16.5);
  EXPECT_DOUBLE_EQ(s.total_rate, 31.5);
  EXPECT_DOUBLE_EQ(s.request_rate, 1.5);
  EXPECT_DOUBLE_EQ(s.good_rate, 1.0);
  EXPECT_DOUBLE_EQ(s.prefill_rate, 20 / 0.4);
  EXPECT_DOUBLE_EQ(s.generator_cpu_percent, 0.5);
  EXPECT_NEAR(s.ttft_ms.mean, 300, 1e-9);
  EXPECT_NEAR(s.tpot_ms.mean, 20, 1e-9);  // a request of one token has no TPOT
  EXPECT_NEAR(s.itl_ms.mean, (10 * 10 + 20 * 30) / 30.0, 1e-9);
  EXPECT_NEAR(s.e2e_ms.max, 1000, 1e-9);
  EXPECT_FALSE(s.clean());
}

TEST(Summary, SaysInTextAndJsonWhatWentWrong) {
  RunResult run;
  run.requests = {answered(0.0, 0.2, 0.01, 11), failed("timeout", "no whole answer in time"), {}};
  run.requests[0].expected_tokens = 12;
  run.duration_s = 1.0;
  run.interrupted = true;
  const Summary s = summarise(run, {});
  EXPECT_EQ(s.short_answers, 1);
  EXPECT_EQ(s.unfinished, 1);
  const RunLabel label{"A", "http://h", "m", {{"seed", 1}}};
  const std::string text = summary_text(label, s, {});
  EXPECT_THAT(text, HasSubstr("error timeout: 1 requests, the first: no whole answer in time"));
  EXPECT_THAT(text, HasSubstr("short: 1 answers"));
  EXPECT_THAT(text, HasSubstr("interrupted: 1 requests not finished"));
  const auto json = summary_json(label, s, {}, run);
  EXPECT_EQ(json["errors"]["timeout"], 1);
  EXPECT_EQ(json["short"], 1);
  EXPECT_TRUE(json["prefill_tokens_per_s"].is_null());
  EXPECT_TRUE(json["goodput_request_per_s"].is_null());
  EXPECT_EQ(json["ttft_ms"]["p50"], 200.0);
  ASSERT_EQ(json["requests"].size(), 3u);
  EXPECT_EQ(json["requests"][0]["itl_ms"].size(), 10u);
  EXPECT_EQ(json["requests"][1]["error"], "timeout");
  EXPECT_EQ(json["requests"][2]["error"], "unfinished");
}

TEST(Goodput, IsParsedOrRefused) {
  const auto goodput = parse_goodput({"ttft:500", "tpot:30.5"});
  ASSERT_TRUE(goodput.ok());
  EXPECT_EQ(goodput->ttft_ms, 500);
  EXPECT_EQ(goodput->tpot_ms, 30.5);
  EXPECT_FALSE(parse_goodput({})->asked());
  for (const char* bad : {"ttft", "ttft:", "ttft:0", "ttft:-1", "ttft:1x", "itl:3", "tpot:inf"})
    EXPECT_THAT(status_message(parse_goodput({bad}).status()), HasSubstr("legal are")) << bad;
}

}  // namespace
}  // namespace millrace::bench
