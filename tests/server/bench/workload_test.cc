#include "server/bench/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace millrace::bench {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

WorkloadOptions small() {
  WorkloadOptions o;
  o.model = "m";
  o.num_prompts = 5;
  o.random_input_len = 6;
  o.random_output_len = 9;
  o.random_prefix_len = 4;
  o.vocab_size = 120;
  return o;
}

std::vector<int> ids(const LoadRequest& request) {
  return Json::parse(request.body)["prompt"].get<std::vector<int>>();
}

std::string trace_file(const std::string& text) {
  const std::string path = testing::TempDir() + "/workload_" + std::to_string(::getpid());
  std::ofstream(path) << text;
  return path;
}

TEST(Workload, RandomPromptsHaveTheLengthsAskedForAndShareThePrefix) {
  const auto workload = make_workload(small(), 2, true);
  ASSERT_TRUE(workload.ok());
  ASSERT_EQ(workload->requests.size(), 5u);
  ASSERT_EQ(workload->warmups.size(), 3u);
  const std::vector<int> prefix = ids(workload->warmups[0]);
  EXPECT_EQ(prefix.size(), 4u);
  std::set<std::vector<int>> different;
  for (const auto* list : {&workload->requests, &workload->warmups}) {
    for (const LoadRequest& request : *list) {
      const std::vector<int> prompt = ids(request);
      EXPECT_TRUE(std::equal(prefix.begin(), prefix.end(), prompt.begin()));
      for (const int id : prompt) EXPECT_TRUE(id >= 100 && id < 120);
      EXPECT_EQ(request.prompt_tokens, static_cast<int>(prompt.size()));
      different.insert(prompt);
    }
  }
  EXPECT_EQ(different.size(), 8u);
  const Json body = Json::parse(workload->requests[0].body);
  EXPECT_EQ(body["prompt"].size(), 10u);
  EXPECT_EQ(body["max_tokens"], 9);
  EXPECT_EQ(body["min_tokens"], 9);
  EXPECT_EQ(body["ignore_eos"], true);
  EXPECT_EQ(body["temperature"], 0);
  EXPECT_EQ(body["stream"], true);
  EXPECT_EQ(body["stream_options"]["include_usage"], true);
  EXPECT_EQ(body["model"], "m");
  EXPECT_EQ(workload->requests[0].expected_tokens, 9);
}

TEST(Workload, ExtraFieldsAreSentButDoNotReplaceTheLength) {
  WorkloadOptions o = small();
  o.extra_body = R"({"temperature": 0.5, "top_p": 0.9, "max_tokens": 1, "stream": false})";
  const Json body = Json::parse(make_workload(o, 0, false)->requests[0].body);
  EXPECT_EQ(body["temperature"], 0.5);
  EXPECT_EQ(body["top_p"], 0.9);
  EXPECT_EQ(body["max_tokens"], 9);
  EXPECT_EQ(body["stream"], true);
  for (const char* wrong : {"[1]", "{", "7"}) {
    o.extra_body = wrong;
    EXPECT_THAT(status_message(make_workload(o, 0, false).status()),
                HasSubstr("--extra-body must be a JSON object"));
  }
}

TEST(Workload, TheSeedDecidesEveryByte) {
  WorkloadOptions o = small();
  const std::string body = make_workload(o, 0, false)->requests[3].body;
  EXPECT_EQ(make_workload(o, 4, true)->requests[3].body, body);
  o.seed = 1;
  EXPECT_NE(make_workload(o, 0, false)->requests[3].body, body);
}

TEST(Workload, ChatSendsWordsAndMayEndEarly) {
  WorkloadOptions o = small();
  o.endpoint = kChatPath;
  o.ignore_eos = false;
  const auto workload = make_workload(o, 0, false);
  const Json body = Json::parse(workload->requests[0].body);
  const std::string text = body["messages"][0]["content"];
  EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 9);
  EXPECT_EQ(body["messages"][0]["role"], "user");
  EXPECT_FALSE(body.contains("ignore_eos"));
  EXPECT_EQ(workload->requests[0].expected_tokens, 0);
}

TEST(Workload, ArrivalsAreAPoissonProcessThatTheSeedDecides) {
  const int count = 20001;
  const auto times = arrival_times(count, 50.0, 1.0, 7);
  EXPECT_EQ(times, arrival_times(count, 50.0, 1.0, 7));
  EXPECT_NE(times, arrival_times(count, 50.0, 1.0, 8));
  EXPECT_EQ(times[0], 0.0);
  double squares = 0.0;
  for (size_t i = 1; i < times.size(); ++i) squares += std::pow(times[i] - times[i - 1], 2);
  const double mean = times.back() / (count - 1);
  EXPECT_NEAR(mean, 0.02, 0.02 * 0.03);
  // Of an exponential distribution the standard deviation is the mean.
  EXPECT_NEAR(squares / (count - 1) - mean * mean, mean * mean, mean * mean * 0.08);
  for (const double t : arrival_times(3, std::numeric_limits<double>::infinity(), 1.0, 7))
    EXPECT_EQ(t, 0.0);
}

TEST(Workload, ATraceGivesBodiesAndTimes) {
  WorkloadOptions o;
  o.model = "m";
  o.trace = trace_file(
      "{\"arrival_s\": 2.5, \"prompt\": [1, 2, 3], \"max_tokens\": 4, \"ignore_eos\": true}\n\n"
      "{\"arrival_s\": 1, \"model\": \"own\", \"messages\": [], \"max_completion_tokens\": 8}\n");
  const auto workload = make_workload(o, 3, false);
  ASSERT_TRUE(workload.ok()) << workload.status();
  ASSERT_EQ(workload->requests.size(), 2u);
  EXPECT_EQ(workload->warmups.size(), 3u);
  const LoadRequest& chat = workload->requests[0];
  EXPECT_EQ(chat.path, kChatPath);
  EXPECT_EQ(chat.due_s, 1.0);
  EXPECT_EQ(Json::parse(chat.body)["model"], "own");
  EXPECT_EQ(chat.expected_tokens, 0);
  const LoadRequest& text = workload->requests[1];
  EXPECT_EQ(text.path, kCompletionsPath);
  EXPECT_EQ(text.due_s, 2.5);
  EXPECT_EQ(text.prompt_tokens, 3);
  EXPECT_EQ(text.expected_tokens, 4);
  EXPECT_EQ(Json::parse(text.body),
            Json::parse(R"({"prompt":[1,2,3],"max_tokens":4,"ignore_eos":true,"model":"m",
                            "stream":true,"stream_options":{"include_usage":true}})"));
  o.ignore_eos = true;
  const auto exact = make_workload(o, 0, false);
  EXPECT_EQ(Json::parse(exact->requests[0].body)["min_tokens"], 8);
  EXPECT_EQ(exact->requests[0].expected_tokens, 8);
  o.num_prompts = 1;
  EXPECT_EQ(make_workload(o, 0, false)->requests.size(), 1u);
}

TEST(Workload, SaysWhatIsLegal) {
  const auto error = [](const WorkloadOptions& o, bool warm_prefix = false) {
    return status_message(make_workload(o, 0, warm_prefix).status());
  };
  WorkloadOptions o = small();
  o.endpoint = "/v1/embeddings";
  EXPECT_THAT(error(o), HasSubstr("/v1/chat/completions"));
  o = small();
  o.request_rate = 0.0;
  EXPECT_THAT(error(o), HasSubstr("above 0"));
  o = small();
  o.vocab_size = 100;
  EXPECT_THAT(error(o), HasSubstr("--vocab-size must be above 100"));
  o = small();
  o.random_prefix_len = 0;
  EXPECT_THAT(error(o, true), HasSubstr("--random-prefix-len"));
  o.trace = "/nowhere/at/all";
  EXPECT_THAT(error(o), HasSubstr("cannot be read"));
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "has no row"},
           {"{\"prompt\": \"a\"}\n[]\n", "line 2: a row must be one JSON object"},
           {"{}", "either messages or a prompt"},
           {"{\"prompt\": \"a\", \"arrival_s\": -1}", "arrival_s must be"},
           {"{\"prompt\": \"a\", \"arrival_s\": 1}\n{\"prompt\": \"a\"}", "line 2: either all"},
           {"{\"prompt\": \"a\"}\n{\"prompt\": \"a\", \"arrival_s\": 1}", "line 2: either all"},
           {"{\"prompt\": \"a\", \"stream_options\": 1}", "stream_options must be"}}) {
    o.trace = trace_file(text);
    EXPECT_THAT(error(o), HasSubstr(message)) << text;
  }
  o.trace = trace_file("{\"prompt\": \"a\"}");
  o.ignore_eos = true;
  EXPECT_THAT(error(o), HasSubstr("needs max_tokens"));
}

}  // namespace
}  // namespace millrace::bench
