// Start, health and drain of the whole service.
#include <gtest/gtest.h>

#include <string>

#include "tests/server/app/service_fixture.h"

namespace millrace::app {
namespace {

using std::chrono::milliseconds;

constexpr char kChat[] = "/v1/chat/completions";
constexpr char kEndlessStream[] = R"("max_tokens":4000,"ignore_eos":true,"stream":true)";

class LifecycleTest : public ServiceTest {};

TEST_F(LifecycleTest, IsAliveAndNotReadyWhileTheModelLoads) {
  start();
  EXPECT_EQ(get("/livez").status, 200);
  EXPECT_EQ(get("/metrics").status, 200);
  for (const char* path : {"/readyz", "/health"}) EXPECT_EQ(get(path).status, 503) << path;
  const net::ClientResponse early = post(kChat, chat_body());
  EXPECT_EQ(early.status, 503);
  EXPECT_EQ(early.headers.count("retry-after"), 1u);
  EXPECT_EQ(Json::parse(early.body)["error"]["code"], "model_loading");
  make_ready();
  for (const char* path : {"/readyz", "/health", "/livez", "/ping"}) {
    EXPECT_EQ(get(path).status, 200) << path;
  }
  EXPECT_EQ(post(kChat, chat_body()).status, 200);
}

TEST_F(LifecycleTest, HealthFollowsTheEnginesHeartbeatAndProgress) {
  ServiceOptions options;
  options.health.stall_seconds = 30.0;
  start_ready(std::move(options));
  engine_->set_health(3600.0, 0.0);
  EXPECT_EQ(get("/health").status, 200) << "an idle loop need not turn";
  engine_->set_health(0.1, 31.0);
  EXPECT_EQ(get("/health").status, 503);
  EXPECT_EQ(get("/readyz").status, 503);
  EXPECT_EQ(get("/livez").status, 200) << "liveness is slower to give up";
  EXPECT_EQ(post(kChat, chat_body()).status, 503);
  engine_->set_health(0.1, 121.0);
  EXPECT_EQ(get("/livez").status, 503);
  engine_->set_health(0.1, 0.0);
  EXPECT_EQ(get("/health").status, 200);

  engine_->set_paused(true);
  net::LoopbackClient client(port());
  client.send(http_post(kChat, chat_body()));
  ASSERT_TRUE(eventually([&] { return engine_->live() == 1; }));
  engine_->set_health(31.0, 0.0);
  EXPECT_EQ(get("/health").status, 503) << "work waits and the loop does not turn";
}

TEST_F(LifecycleTest, DrainsInOrder) {
  start_ready();
  engine_->set_script("slow ", /*endless=*/true);
  net::LoopbackClient running(port());
  running.send(http_post(kChat, chat_body(R"("max_tokens":300,"ignore_eos":true,"stream":true)")));
  ASSERT_TRUE(running.read_until("data: "));
  engine_->set_paused(true);
  net::LoopbackClient queued(port());
  queued.send(http_post(kChat, chat_body()));
  ASSERT_TRUE(eventually([&] { return engine_->live() == 2; }));

  service_->begin_drain();
  EXPECT_EQ(get("/readyz").status, 503);
  EXPECT_EQ(get("/livez").status, 200);
  EXPECT_EQ(post("/tokenize", R"({"prompt":"a"})").status, 200) << "still accepting";

  service_->stop_accepting();
  const net::ClientResponse refused = queued.read_response();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.count("retry-after"), 1u);
  EXPECT_FALSE(net::LoopbackClient(port()).connected());

  engine_->set_paused(false);
  const net::ClientResponse finished = running.read_response();
  EXPECT_TRUE(finished.complete);
  EXPECT_EQ(joined_content(finished.body).size(), 300u);
  EXPECT_EQ(stream_events(finished.body).back(), "[DONE]");
  EXPECT_TRUE(eventually([&] { return service_->open_answers() == 0; }));
}

TEST_F(LifecycleTest, WhatDoesNotFinishInTimeEndsWithAnErrorEvent) {
  start_ready();
  engine_->set_script("slow ", /*endless=*/true);
  net::LoopbackClient running(port());
  running.send(http_post(kChat, chat_body(kEndlessStream)));
  ASSERT_TRUE(running.read_until("data: "));
  net::LoopbackClient whole(port());
  whole.send(http_post(kChat, chat_body(R"("max_tokens":4000,"ignore_eos":true)")));
  ASSERT_TRUE(eventually([&] { return engine_->live() == 2; }));
  service_->begin_drain();
  service_->fail_remaining("The server is shutting down.");
  service_->wait_until_sent(milliseconds(2000));
  const net::ClientResponse streamed = running.read_response();
  EXPECT_TRUE(streamed.complete);
  EXPECT_TRUE(Json::parse(stream_events(streamed.body).back()).contains("error"));
  EXPECT_EQ(streamed.body.find("[DONE]"), std::string::npos);
  EXPECT_TRUE(running.wait_for_end());
  EXPECT_EQ(whole.read_response().status, 503);
  EXPECT_TRUE(eventually([&] { return engine_->live() == 0; }));
}

TEST_F(LifecycleTest, AnEngineThatStopsEndsEveryAnswer) {
  start_ready();
  engine_->set_script("slow ", /*endless=*/true);
  net::LoopbackClient streamed(port()), whole(port());
  streamed.send(http_post(kChat, chat_body(kEndlessStream)));
  whole.send(http_post(kChat, chat_body(R"("max_tokens":4000,"ignore_eos":true)")));
  ASSERT_TRUE(streamed.read_until("data: "));
  ASSERT_TRUE(eventually([&] { return engine_->live() == 2; }));
  engine_->stop();
  const net::ClientResponse stream_end = streamed.read_response();
  EXPECT_TRUE(stream_end.complete);
  EXPECT_TRUE(Json::parse(stream_events(stream_end.body).back()).contains("error"));
  EXPECT_GE(whole.read_response().status, 500);
}

TEST_F(LifecycleTest, StopsWhileRequestsAreInEveryPhase) {
  ServiceOptions options;
  options.text_threads = 1;
  start_ready(std::move(options));
  engine_->set_script("slow ", /*endless=*/true);
  std::vector<std::unique_ptr<net::LoopbackClient>> clients;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(std::make_unique<net::LoopbackClient>(port()));
    clients.back()->send(http_post(kChat, chat_body(kEndlessStream)));
  }
  service_->stop();
  engine_->stop();
  for (const auto& client : clients) EXPECT_TRUE(client->wait_for_end());
}

TEST(Health, LoadingIsAliveOnlyWhileItMakesProgress) {
  const TimePoint start{};
  Health health({.load_stall_seconds = 600.0}, start);
  EXPECT_FALSE(health.not_live(nullptr, start + std::chrono::seconds(599)));
  EXPECT_TRUE(health.not_live(nullptr, start + std::chrono::seconds(601)));
  health.note_load_progress(start + std::chrono::seconds(500));
  EXPECT_FALSE(health.not_live(nullptr, start + std::chrono::seconds(1099)));
  EXPECT_TRUE(health.not_ready(nullptr));
}

}  // namespace
}  // namespace millrace::app
