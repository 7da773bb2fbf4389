#include "server/bench/load_answer.h"

#include <gtest/gtest.h>

namespace millrace::bench {
namespace {

constexpr std::string_view kStream =
    ": a comment\n\n"
    "data: {\"choices\":[{\"text\":\" a\",\"finish_reason\":null}]}\n\n"
    "data: {\"choices\":[{\"text\":\" b\",\"finish_reason\":null}]}\r\n\r\n"
    "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,"
    "\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n"
    "data: [DONE]\n\n";

// Reads that end at the given places, the n-th of them n milliseconds after the start.
Recording recorded(std::string_view body, std::vector<size_t> ends = {}) {
  Recording out;
  out.status = 200;
  out.start = TimePoint{} + std::chrono::seconds(5);
  out.body = body;
  ends.push_back(body.size());
  for (size_t i = 0; i < ends.size(); ++i)
    out.marks.push_back({out.start + std::chrono::milliseconds(i + 1), ends[i]});
  return out;
}

std::string chat_event(std::string_view delta, std::string_view finish = "null") {
  return "data: {\"choices\":[{\"delta\":" + std::string(delta) +
         ",\"finish_reason\":" + std::string(finish) + "}]}\n\n";
}

TEST(Events, HaveNamesDataAndEnds) {
  std::vector<std::string> seen;
  std::vector<size_t> ends;
  const std::string_view text =
      "data: a\ndata:b\n\nevent: x\nid: 1\ndata:  c\r\n\r\nerror: d\r\rdata: cut";
  for_each_event(text, [&](std::string_view name, std::string_view data, size_t end) {
    seen.push_back(std::string(name) + "=" + std::string(data));
    ends.push_back(end);
  });
  EXPECT_EQ(seen, (std::vector<std::string>{"data=a\nb", "data= c", "error=d"}));
  EXPECT_EQ(ends, (std::vector<size_t>{16, text.find("error"), text.find("data: cut")}));
}

TEST(ReadAnswer, CountsTokensByUsageAndTimesByChunks) {
  const size_t first = kStream.find("\n\n", 14) + 2;
  const Answer answer = read_answer(recorded(kStream, {first}));
  EXPECT_EQ(answer.failure, "");
  EXPECT_EQ(answer.tokens, 3);
  EXPECT_EQ(answer.prompt_tokens, 7);
  EXPECT_EQ(answer.cached_tokens, 4);
  EXPECT_DOUBLE_EQ(answer.first_s, 0.001);
  EXPECT_DOUBLE_EQ(answer.last_s, 0.002);
  ASSERT_EQ(answer.gaps_s.size(), 1u);
  EXPECT_NEAR(answer.gaps_s[0], 0.001, 1e-12);
  EXPECT_NEAR(answer.tpot_s(), 0.0005, 1e-12);
}

// The time of an event is that of the read that brought its last byte, wherever reads end.
TEST(ReadAnswer, HoldsForEveryPlaceWhereAReadMayEnd) {
  const size_t first = kStream.find("\n\n", 14) + 2;
  const size_t second = kStream.find("\r\n\r\n") + 4;
  for (size_t cut = 1; cut < kStream.size(); ++cut) {
    const Answer answer = read_answer(recorded(kStream, {cut}));
    EXPECT_EQ(answer.failure, "");
    EXPECT_EQ(answer.tokens, 3);
    EXPECT_DOUBLE_EQ(answer.first_s, cut >= first ? 0.001 : 0.002) << cut;
    EXPECT_DOUBLE_EQ(answer.last_s, cut >= second ? 0.001 : 0.002) << cut;
  }
  std::vector<size_t> every;
  for (size_t i = 1; i < kStream.size(); ++i) every.push_back(i);
  const Answer answer = read_answer(recorded(kStream, every));
  EXPECT_DOUBLE_EQ(answer.first_s, static_cast<double>(first) * 1e-3);
  EXPECT_DOUBLE_EQ(answer.last_s, static_cast<double>(second) * 1e-3);
}

TEST(ReadAnswer, ARoleOrAFinishReasonAloneIsNoToken) {
  const std::string role = chat_event(R"({"role":"assistant","content":""})");
  const std::string body = role + chat_event(R"({"content":"a"})") +
                           chat_event(R"({"content":""})") +
                           chat_event(R"({"reasoning_content":"b"})") +
                           chat_event("{}", "\"stop\"") + "data: [DONE]\n\n";
  const Answer answer = read_answer(recorded(body, {role.size()}));
  EXPECT_EQ(answer.failure, "");
  EXPECT_EQ(answer.tokens, 3);
  EXPECT_DOUBLE_EQ(answer.first_s, 0.002);
}

TEST(ReadAnswer, NamesEachFailure) {
  const std::string token = chat_event(R"({"content":"a"})");
  const auto failure = [](std::string_view body) { return read_answer(recorded(body)).failure; };
  EXPECT_EQ(failure(token), "missing_done");
  EXPECT_EQ(failure(token + "data: [DONE]"), "missing_done");
  EXPECT_EQ(failure("data: [DONE]\n\n"), "empty");
  EXPECT_EQ(failure(token + "data: nonsense\n\n"), "bad_event");
  EXPECT_EQ(failure("{\"choices\":[]}"), "missing_done");
  const Answer error =
      read_answer(recorded(token + "data: {\"error\":{\"message\":\"no\"}}\n\ndata: [DONE]\n\n"));
  EXPECT_EQ(error.failure, "error_event");
  EXPECT_EQ(error.message, "no");
  EXPECT_EQ(failure("error: {\"code\":500}\n\n"), "error_event");

  Recording refused = recorded("{\"error\":{\"message\":\"too many\"}}");
  refused.status = 429;
  EXPECT_EQ(read_answer(refused).failure, "http_429");
  EXPECT_EQ(read_answer(refused).message, "too many");
  refused.failure = "timeout";
  EXPECT_EQ(read_answer(refused).failure, "timeout");
}

}  // namespace
}  // namespace millrace::bench
