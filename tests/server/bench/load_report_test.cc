#include "server/bench/load_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "server/bench/load_plot.h"

namespace millrace::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

SavedResult result(const std::string& name, double output_rate) {
  const auto spread = nlohmann::ordered_json{{"mean", 10.0}, {"p50", 9.0}};
  return {name,
          {{"model", "m<1>"},
           {"base_url", "http://h"},
           {"workload", {{"seed", 1}}},
           {"output_tokens_per_s", output_rate},
           {"failed", 0},
           {"prefill_tokens_per_s", nullptr},
           {"ttft_ms", spread},
           {"tpot_ms", spread},
           {"itl_ms", spread},
           {"e2e_ms", spread},
           {"requests",
            {{{"start_s", 0.0},
              {"ttft_ms", 50.0},
              {"e2e_ms", 70.0},
              {"tokens", 3},
              {"itl_ms", {10.0, 10.0}}},
             {{"start_s", 0.0}, {"error", "timeout"}}}}}};
}

TEST(Report, ComparesWithTheFirst) {
  const std::string text = comparison_text({result("base", 200.0), result("new", 300.0)});
  EXPECT_THAT(text, HasSubstr("base"));
  EXPECT_THAT(text, HasSubstr("300.00 x1.50"));
  EXPECT_THAT(text, HasSubstr("TTFT p50, ms"));
  EXPECT_THAT(text, Not(HasSubstr("prefill")));
}

TEST(Report, IsOnePageThatLoadsNothing) {
  const std::string html = report_html({result("a & b", 200.0), result("<script>", 300.0)});
  for (const char* external : {"src=", "href=", "url(", "@import", "<script"})
    EXPECT_THAT(html, Not(HasSubstr(external)));
  EXPECT_THAT(html, HasSubstr("a &amp; b"));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;"));
  size_t plots = 0;
  for (size_t at = 0; (at = html.find("<svg ", at)) != std::string::npos; ++at) ++plots;
  EXPECT_EQ(plots, 4u);
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  SavedResult empty = result("none", 0.0);
  empty.json["requests"] = nlohmann::ordered_json::array();
  EXPECT_THAT(report_html({empty}), Not(HasSubstr("<svg ")));
}

TEST(Report, RefusesWhatIsNoResult) {
  const std::string name = "load_report_" + std::to_string(::getpid());
  const std::string path = testing::TempDir() + "/" + name + ".json";
  const auto message = [&](const std::string& text) {
    std::ofstream(path) << text;
    return status_message(read_result(path).status());
  };
  EXPECT_THAT(message("{}"), HasSubstr("is no result"));
  EXPECT_THAT(message("nonsense"), HasSubstr("is no result"));
  EXPECT_EQ(message(result("", 1.0).json.dump()), "");
  EXPECT_EQ(read_result(path)->name, name);
  EXPECT_THAT(status_message(read_result("/nowhere/at/all").status()), HasSubstr("cannot be read"));
}

TEST(Plot, HasRoundTicks) {
  EXPECT_EQ(axis_ticks(0, 10, false), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(axis_ticks(0, 1400, false), (std::vector<double>{0, 500, 1000}));
  EXPECT_EQ(axis_ticks(4, 60, true), (std::vector<double>{5, 10, 20, 50}));
  EXPECT_TRUE(axis_ticks(1, 1, false).empty());
}

}  // namespace
}  // namespace millrace::bench
