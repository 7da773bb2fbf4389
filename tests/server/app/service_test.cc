#include "server/app/service.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/app/service_fixture.h"

namespace millrace::app {
namespace {

using std::chrono::milliseconds;

constexpr char kChat[] = "/v1/chat/completions";
constexpr char kEndless[] = R"("max_tokens":4000,"ignore_eos":true)";

std::string content_of(const net::ClientResponse& response, size_t choice = 0) {
  const Json json = Json::parse(response.body, nullptr, false);
  if (!json.is_object() || !json.contains("choices")) return "no choices: " + response.body;
  return json["choices"][choice]["message"]["content"].get<std::string>();
}

Json error_of(const net::ClientResponse& response) {
  return Json::parse(response.body, nullptr, false)["error"];
}

TEST_F(ServiceTest, AnswersWholeAndStreamedWithTheSameBytes) {
  start_ready();
  engine_->set_script("Gr\xC3\xBC\xC3\x9F Gott, \xF0\x9F\x98\x80 \"quoted\"\n");
  const net::ClientResponse whole = post(kChat, chat_body());
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(whole.headers.at("content-type"), "application/json");
  EXPECT_EQ(content_of(whole), "Gr\xC3\xBC\xC3\x9F Gott, \xF0\x9F\x98\x80 \"quoted\"\n");
  const net::ClientResponse streamed = post(kChat, chat_body(R"("stream":true)"));
  ASSERT_EQ(streamed.status, 200);
  EXPECT_TRUE(streamed.complete);
  EXPECT_EQ(streamed.headers.at("content-type").rfind("text/event-stream", 0), 0u);
  EXPECT_EQ(joined_content(streamed.body), content_of(whole));
  EXPECT_EQ(stream_events(streamed.body).back(), "[DONE]");
}

TEST_F(ServiceTest, OneConnectionServesManyAnswers) {
  start_ready();
  net::LoopbackClient client(port());
  client.send(http_post(kChat, chat_body(R"("stream":true)")) + http_post(kChat, chat_body()) +
              http_post("/v1/completions", R"({"model":"test-model","prompt":"a"})"));
  EXPECT_EQ(joined_content(client.read_response().body), "Hello");
  EXPECT_EQ(content_of(client.read_response()), "Hello");
  EXPECT_EQ(Json::parse(client.read_response().body)["choices"][0]["text"], "Hello");
}

TEST_F(ServiceTest, ErrorsBeforeTheFirstByteAreJsonWithTheirStatus) {
  start_ready();
  const std::string stream = R"("stream":true)";
  const std::vector<std::pair<std::string, int>> cases = {
      {"{", 400},
      {"[]", 400},
      {R"({"model":"test-model"})", 400},
      {chat_body(stream + R"(,"temperature":-1)"), 400},
      {chat_body(stream + R"(,"max_tokens":5000000)"), 400},
      {R"({"model":"nope","stream":true,"messages":[{"role":"user","content":"a"}]})", 404},
      {R"({"model":"test-model","stream":true,"messages":[{"role":"user","content":")" +
           std::string(5000, 'a') + R"("}]})",
       400},
  };
  for (const auto& [body, status] : cases) {
    const net::ClientResponse response = post(kChat, body);
    EXPECT_EQ(response.status, status) << body.substr(0, 80) << response.body;
    EXPECT_EQ(response.headers.at("content-type"), "application/json");
    EXPECT_TRUE(error_of(response).is_object());
  }
  EXPECT_EQ(error_of(post(kChat, cases.back().first))["code"], "context_length_exceeded");
  EXPECT_TRUE(engine_->ids().empty());
}

TEST_F(ServiceTest, AFullQueueIs429AndAStoppedEngineIs503) {
  start_ready();
  engine_->set_refusal(absl::ResourceExhaustedError("The queue is full."));
  const net::ClientResponse full = post(kChat, chat_body(R"("stream":true)"));
  EXPECT_EQ(full.status, 429);
  EXPECT_GE(std::stoi(full.headers.at("retry-after")), 1);
  engine_->set_refusal(absl::UnavailableError("The engine has stopped."));
  const net::ClientResponse stopped = post(kChat, chat_body());
  EXPECT_EQ(stopped.status, 503);
  EXPECT_EQ(stopped.headers.count("retry-after"), 1u);
  EXPECT_EQ(metric("millrace_queue_rejected_total"), 2.0);
  EXPECT_EQ(metric("millrace_requests_accepted_total"), 0.0);
}

TEST_F(ServiceTest, AnEngineFaultIs500OrAnErrorEventWithoutDone) {
  start_ready();
  engine_->set_script("abcdef");
  engine_->fail_after(3);
  const net::ClientResponse whole = post(kChat, chat_body());
  EXPECT_EQ(whole.status, 500);
  const std::string id = whole.headers.at("x-request-id");
  EXPECT_NE(whole.body.find(id), std::string::npos) << "the message names the log's record";
  const net::ClientResponse streamed = post(kChat, chat_body(R"("stream":true)"));
  EXPECT_EQ(streamed.status, 200);
  EXPECT_EQ(joined_content(streamed.body), "abc");
  EXPECT_TRUE(Json::parse(stream_events(streamed.body).back()).contains("error"));
  EXPECT_EQ(streamed.body.find("[DONE]"), std::string::npos);
  engine_->fail_after(0);
  const net::ClientResponse early = post(kChat, chat_body(R"("stream":true)"));
  EXPECT_EQ(early.status, 500) << "nothing was sent, so the status can still tell";
}

TEST_F(ServiceTest, AStopStringEndsTheAnswerAndTheEngineRequest) {
  start_ready();
  engine_->set_script("one STOP two ", /*endless=*/true);
  const std::string members = std::string(kEndless) + R"(,"stop":"STOP")";
  const net::ClientResponse whole = post(kChat, chat_body(members));
  EXPECT_EQ(content_of(whole), "one ");
  EXPECT_EQ(Json::parse(whole.body)["choices"][0]["finish_reason"], "stop");
  const net::ClientResponse streamed = post(kChat, chat_body(members + R"(,"stream":true)"));
  EXPECT_EQ(joined_content(streamed.body), "one ");
  EXPECT_TRUE(eventually([&] { return engine_->live() == 0; }));
  EXPECT_EQ(engine_->cancelled(), 2);
  EXPECT_TRUE(eventually([&] { return metric("vllm:request_success_total") == 2.0; }));
  EXPECT_EQ(metric("vllm:request_success_total{engine=\"0\",finished_reason=\"stop\""), 2.0);
}

TEST_F(ServiceTest, AClientThatLeavesCancelsItsRequestInEveryPhase) {
  start_ready();
  engine_->set_script("endless ", /*endless=*/true);
  struct Case {
    const char* name;
    std::string members;
    bool queued, reset;
    int64_t requests;
  };
  const std::string stream = std::string(kEndless) + R"(,"stream":true)";
  const std::vector<Case> cases = {
      {"streaming, reset", stream, false, true, 1},
      {"streaming, closed", stream, false, false, 1},
      {"whole, reset", kEndless, false, true, 1},
      {"whole, closed", kEndless, false, false, 1},
      {"queued stream", stream, true, true, 1},
      {"queued whole", kEndless, true, false, 1},
      {"four choices", stream + R"(,"n":4)", false, true, 4},
  };
  int64_t cancelled = 0, aborted = 0;
  for (const Case& test : cases) {
    engine_->set_paused(test.queued);
    net::LoopbackClient client(port());
    client.send(http_post(kChat, chat_body(test.members)));
    ASSERT_TRUE(eventually([&] { return engine_->live() == test.requests; })) << test.name;
    if (!test.queued && test.members != kEndless) {
      ASSERT_TRUE(client.read_until("data: ")) << test.name;
    }
    test.reset ? client.reset() : client.close();
    EXPECT_TRUE(eventually([&] { return engine_->live() == 0; })) << test.name;
    cancelled += test.requests;
    EXPECT_EQ(engine_->cancelled(), cancelled) << test.name;
    ++aborted;
    EXPECT_TRUE(eventually([&] {
      return metric("vllm:request_success_total{engine=\"0\",finished_reason=\"abort\"") ==
             static_cast<double>(aborted);
    })) << test.name;
  }
  engine_->set_paused(false);
  engine_->set_script("fine");
  EXPECT_EQ(content_of(post(kChat, chat_body())), "fine");
}

TEST_F(ServiceTest, AClientsRequestIdIsEchoedAndNeverAKey) {
  start_ready();
  engine_->set_paused(true);
  const std::string headers = "X-Request-Id: same\r\n";
  net::LoopbackClient first(port()), second(port());
  engine_->set_script("first answer");
  first.send(http_post(kChat, chat_body(), headers));
  ASSERT_TRUE(eventually([&] { return engine_->live() == 1; }));
  engine_->set_script("second answer");
  second.send(http_post(kChat, chat_body(), headers));
  ASSERT_TRUE(eventually([&] { return engine_->live() == 2; }));
  engine_->set_paused(false);
  const net::ClientResponse one = first.read_response(), two = second.read_response();
  EXPECT_EQ(content_of(one), "first answer");
  EXPECT_EQ(content_of(two), "second answer");
  EXPECT_EQ(one.headers.at("x-request-id"), "same");
  EXPECT_NE(Json::parse(one.body)["id"], Json::parse(two.body)["id"]);

  // Abort and send again with the same id: the old one's end never touches the new one.
  engine_->set_script("again");
  for (int i = 0; i < 100; ++i) {
    net::LoopbackClient gone(port());
    gone.send(http_post(kChat, chat_body(kEndless), headers));
    gone.reset();
    ASSERT_EQ(content_of(post(kChat, chat_body(), headers)), "again") << i;
  }
  const std::vector<RequestId> ids = engine_->ids();
  EXPECT_EQ(std::set<RequestId>(ids.begin(), ids.end()).size(), ids.size());
  EXPECT_TRUE(eventually([&] { return engine_->live() == 0; }));
}

TEST_F(ServiceTest, ARequestIdThatCouldHarmAHeaderOrALogIsNotEchoed) {
  start_ready();
  EXPECT_EQ(get("/health", "X-Request-Id: fine-1\r\n").headers.at("x-request-id"), "fine-1");
  EXPECT_EQ(get("/health", "X-Request-Id: a b\r\n").headers.count("x-request-id"), 0u);
  EXPECT_EQ(get("/health", "X-Request-Id: " + std::string(200, 'a') + "\r\n")
                .headers.count("x-request-id"),
            0u);
}

TEST_F(ServiceTest, ManyConcurrentStreamsEachGetTheirOwnText) {
  start_ready();
  constexpr int kStreams = 200;
  engine_->set_script("a somewhat longer answer for everyone");
  std::vector<std::unique_ptr<net::LoopbackClient>> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<net::LoopbackClient>(port()));
    clients.back()->send(http_post(kChat, chat_body(R"("stream":true,"n":2)")));
  }
  for (int i = 0; i < kStreams; ++i) {
    const net::ClientResponse response = clients[static_cast<size_t>(i)]->read_response();
    ASSERT_TRUE(response.complete) << i;
    // Both choices step together, so their characters alternate.
    ASSERT_EQ(joined_content(response.body).size(), 2 * 37u) << i;
    ASSERT_EQ(stream_events(response.body).back(), "[DONE]") << i;
  }
}

TEST_F(ServiceTest, EveryAcceptedRequestEndsAsExactlyOneReason) {
  start_ready();
  engine_->set_script("endless ", /*endless=*/true);
  for (int i = 0; i < 5; ++i) {
    net::LoopbackClient client(port());
    client.send(http_post(kChat, chat_body(std::string(kEndless) + R"(,"stream":true)")));
    ASSERT_TRUE(client.read_until("data: "));
    client.reset();
  }
  ASSERT_TRUE(eventually([&] { return engine_->live() == 0; }));
  engine_->set_script("done");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(post(kChat, chat_body()).status, 200);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(post(kChat, chat_body(R"("max_tokens":2)")).status, 200);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(post(kChat, chat_body(R"("n":-1)")).status, 400);
  engine_->fail_after(1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(post(kChat, chat_body()).status, 500);

  const std::string prefix = "vllm:request_success_total{engine=\"0\",finished_reason=";
  EXPECT_TRUE(eventually([&] { return metric(prefix) == 15.0; }));
  EXPECT_EQ(metric(prefix + "\"abort\""), 5.0);
  EXPECT_EQ(metric(prefix + "\"stop\""), 3.0);
  EXPECT_EQ(metric(prefix + "\"length\""), 2.0);
  EXPECT_EQ(metric(prefix + "\"error\""), 5.0);
  EXPECT_EQ(metric("millrace_requests_accepted_total"), 15.0);
  EXPECT_EQ(metric("millrace_http_requests_total{route=\"/v1/chat/completions\",status=\"400\"}"),
            5.0);
  // Sums of the single requests equal the engine's totals at idle.
  EXPECT_EQ(metric("vllm:request_generation_tokens_sum"), metric("vllm:generation_tokens_total"));
  EXPECT_EQ(metric("vllm:request_prompt_tokens_sum"), metric("vllm:prompt_tokens_total"));
  EXPECT_EQ(metric("millrace_internal_errors_total"), 0.0);
}

TEST_F(ServiceTest, ASilentStreamGetsItsHeadersAndACommentBeforeTheFirstToken) {
  ServiceOptions options;
  options.http.stream_comment_interval = milliseconds(50);
  start_ready(std::move(options));
  engine_->set_paused(true);
  net::LoopbackClient client(port());
  client.send(http_post(kChat, chat_body(R"("stream":true)")));
  EXPECT_TRUE(client.read_until(": keepalive\n\n"));
  engine_->set_paused(false);
  const net::ClientResponse response = client.read_response();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(joined_content(response.body), "Hello");
}

TEST_F(ServiceTest, TokenizesAndBack) {
  start_ready();
  const net::ClientResponse ids = post("/tokenize", R"({"model":"test-model","prompt":"hi"})");
  ASSERT_EQ(ids.status, 200) << ids.body;
  EXPECT_EQ(Json::parse(ids.body)["tokens"], Json::array({'h', 'i'}));
  const net::ClientResponse text =
      post("/detokenize", R"({"model":"test-model","tokens":[104,105]})");
  EXPECT_EQ(Json::parse(text.body)["prompt"], "hi") << text.body;
  EXPECT_EQ(post("/detokenize", R"({"tokens":[-1]})").status, 400);
}

}  // namespace
}  // namespace millrace::app
