#include "server/net/http_server.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/net/loopback_client.h"

namespace millrace::net {
namespace {

using std::chrono::milliseconds;

// A server whose routes are scripts of this test; it remembers the disconnects it was told.
class HttpServerTest : public testing::Test {
 protected:
  void start(ServerOptions options = {}) {
    options.host = "127.0.0.1";
    options.port = 0;
    server_ = std::make_unique<HttpServer>(
        options, [this](std::shared_ptr<Exchange> exchange) { handle(std::move(exchange)); });
    ASSERT_TRUE(server_->start().ok());
  }

  void handle(std::shared_ptr<Exchange> exchange) {
    const std::string& path = exchange->request().path;
    exchange->on_disconnect([this, path](Disconnect reason) {
      const std::lock_guard lock(mutex_);
      gone_.emplace_back(path, reason);
      changed_.notify_all();
    });
    if (path == "/echo") {
      exchange->respond({.content_type = "text/plain", .body = exchange->request().body});
    } else if (path == "/big") {
      exchange->respond({.body = std::string(4 << 20, 'b')});
    } else if (path == "/drop") {
      return;
    } else if (path == "/hold" || path == "/stream") {
      if (path == "/stream") exchange->begin_stream({.content_type = "text/event-stream"});
      held_.push_back(std::move(exchange));
    } else {
      exchange->respond({.status = 404, .body = "{}"});
    }
  }

  // Runs on the io thread and waits.
  void on_io(const std::function<void()>& work) {
    std::mutex mutex;
    std::condition_variable done_changed;
    bool done = false;
    server_->post([&] {
      work();
      const std::lock_guard lock(mutex);
      done = true;
      done_changed.notify_all();
    });
    std::unique_lock lock(mutex);
    done_changed.wait(lock, [&] { return done; });
  }
  bool wait_for_held(size_t count) {
    for (int i = 0; i < 500; ++i) {
      size_t now = 0;
      on_io([&] { now = held_.size(); });
      if (now >= count) return true;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return false;
  }
  std::optional<Disconnect> wait_for_disconnect(milliseconds limit = milliseconds(3000)) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [&] { return !gone_.empty(); });
    if (gone_.empty()) return std::nullopt;
    return gone_.front().second;
  }
  bool wait_for_no_exchange() {
    for (int i = 0; i < 300 && server_->stats().exchanges > 0; ++i) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    return server_->stats().exchanges == 0;
  }
  uint16_t port() const { return server_->port(); }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<std::string, Disconnect>> gone_;  // guarded by mutex_
  std::vector<std::shared_ptr<Exchange>> held_;           // io thread
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, KeepsAConnectionForManyRequests) {
  start();
  LoopbackClient client(port());
  for (int i = 0; i < 20; ++i) {
    const ClientResponse response = client.request("POST", "/echo", std::to_string(i));
    ASSERT_TRUE(response.complete);
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, std::to_string(i));
    EXPECT_EQ(response.headers.at("connection"), "keep-alive");
  }
  EXPECT_EQ(server_->stats().connections, 1);
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  start();
  LoopbackClient client(port());
  std::string burst;
  for (int i = 0; i < 50; ++i) {
    const std::string body(static_cast<size_t>(i), 'x');
    burst += "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(i) + "\r\n\r\n" +
             body;
  }
  client.send(burst);
  for (size_t i = 0; i < 50; ++i) {
    ASSERT_EQ(client.read_response().body.size(), i);
  }
}

TEST_F(HttpServerTest, KeepsPipelinedBytesWhileAnAnswerIsBeingMade) {
  start();
  LoopbackClient client(port());
  client.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(wait_for_held(1));
  // More than is kept while answering, so reading pauses and must resume.
  const std::string body(300'000, 'p');
  std::thread sender([&] {
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" + body);
  });
  std::this_thread::sleep_for(milliseconds(100));
  on_io([&] { held_[0]->respond({.body = "first"}); });
  EXPECT_EQ(client.read_response().body, "first");
  EXPECT_EQ(client.read_response().body, body);
  sender.join();
}

TEST_F(HttpServerTest, HeadHasLengthButNoBodyAndHttp10Closes) {
  start();
  LoopbackClient head(port());
  const ClientResponse response = head.request("HEAD", "/big");
  EXPECT_EQ(response.headers.at("content-length"), std::to_string(4 << 20));
  EXPECT_EQ(head.request("POST", "/echo", "next").body, "next");
  LoopbackClient old(port());
  old.send("POST /echo HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_EQ(old.read_response().body, "hi");
  EXPECT_TRUE(old.wait_for_end());
}

TEST_F(HttpServerTest, MisuseIsAnsweredAndClosedAndOthersGoOn) {
  start();
  const std::vector<std::pair<std::string, int>> cases = {
      {"\x16\x03\x01\r\n\r\n", 400},
      {"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
       400},
      {"GET /echo HTTP/1.1\r\n\r\n", 400},
      {"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n", 413},
      {"GET /" + std::string(100'000, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n", 431},
  };
  LoopbackClient witness(port());
  for (const auto& [text, status] : cases) {
    LoopbackClient client(port());
    client.send(text);
    EXPECT_EQ(client.read_response().status, status) << text.substr(0, 60);
    EXPECT_TRUE(client.wait_for_end()) << text.substr(0, 60);
    EXPECT_EQ(witness.request("POST", "/echo", "alive").body, "alive");
  }
  EXPECT_EQ(server_->stats().refused_requests, 5);
}

TEST_F(HttpServerTest, ARefusedUploadStillReadsItsAnswer) {
  ServerOptions options;
  options.parser.max_body_bytes = 1000;
  start(options);
  LoopbackClient client(port());
  client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n" +
              std::string(2'000'000, 'u'));
  EXPECT_EQ(client.read_response().status, 413);
}

TEST_F(HttpServerTest, ContinuesAnExpectedBody) {
  start();
  LoopbackClient client(port());
  client.send(
      "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.read_until("HTTP/1.1 100 Continue\r\n\r\n"));
  EXPECT_EQ(client.read_response(false).status, 100);
  client.send("ok");
  EXPECT_EQ(client.read_response().body, "ok");
}

TEST_F(HttpServerTest, TimesOutIdleHeadersAndBodies) {
  ServerOptions options;
  options.idle_timeout = milliseconds(60);
  options.header_timeout = milliseconds(60);
  options.body_timeout = milliseconds(60);
  start(options);
  LoopbackClient idle(port()), header(port()), body(port());
  header.send("GET /echo HT");
  body.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
  EXPECT_EQ(header.read_response().status, 408);
  EXPECT_EQ(body.read_response().status, 408);
  EXPECT_TRUE(idle.wait_for_end());
  EXPECT_EQ(idle.input(), "");
  // Neither clock runs while a request is being answered.
  LoopbackClient held(port());
  held.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(wait_for_held(1));
  std::this_thread::sleep_for(milliseconds(200));
  on_io([&] { held_[0]->respond({.body = "late"}); });
  EXPECT_EQ(held.read_response().body, "late");
}

TEST_F(HttpServerTest, LimitsConnectionsAndRequestsPerConnection) {
  ServerOptions options;
  options.max_connections = 2;
  options.max_requests_per_connection = 2;
  start(options);
  LoopbackClient first(port()), second(port());
  EXPECT_EQ(first.request("POST", "/echo", "a").body, "a");
  EXPECT_EQ(second.request("POST", "/echo", "b").body, "b");
  LoopbackClient third(port());
  EXPECT_EQ(third.read_response().status, 503);
  EXPECT_TRUE(third.wait_for_end());
  const ClientResponse last = first.request("POST", "/echo", "c");
  EXPECT_EQ(last.headers.at("connection"), "close");
  EXPECT_TRUE(first.wait_for_end());
}

TEST_F(HttpServerTest, AnExchangeThatIsDroppedAnswers500) {
  start();
  LoopbackClient client(port());
  EXPECT_EQ(client.request("GET", "/drop").status, 500);
  EXPECT_EQ(client.request("POST", "/echo", "x").body, "x");
}

TEST_F(HttpServerTest, NoticesWithinMillisecondsThatAClientLeft) {
  start();
  for (const bool reset : {false, true}) {
    for (const std::string path : {"/hold", "/stream"}) {
      on_io([&] { held_.clear(); });
      {
        const std::lock_guard lock(mutex_);
        gone_.clear();
      }
      LoopbackClient client(port());
      client.send("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
      ASSERT_TRUE(wait_for_held(1));
      const auto begin = std::chrono::steady_clock::now();
      reset ? client.reset() : client.close();
      EXPECT_EQ(wait_for_disconnect(), Disconnect::client_gone) << path << reset;
      EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(500));
      EXPECT_TRUE(wait_for_no_exchange());
      // Late calls have no effect.
      on_io([&] {
        held_[0]->write("x");
        held_[0]->end_stream(false);
        held_[0]->respond({});
      });
    }
  }
}

TEST_F(HttpServerTest, StreamsInChunksAndKeepsTheConnection) {
  start();
  LoopbackClient client(port());
  client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(wait_for_held(1));
  on_io([&] { held_[0]->write("data: 1\n\n"); });
  EXPECT_TRUE(client.read_until("data: 1\n\n"));
  on_io([&] {
    held_[0]->write("data: 2\n\n");
    held_[0]->write("data: 3\n\n");
    held_[0]->end_stream(false);
  });
  const ClientResponse response = client.read_response();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.body, "data: 1\n\ndata: 2\n\ndata: 3\n\n");
  EXPECT_EQ(client.request("POST", "/echo", "again").body, "again");
}

TEST_F(HttpServerTest, ASilentStreamGetsComments) {
  ServerOptions options;
  options.stream_comment_interval = milliseconds(40);
  start(options);
  LoopbackClient client(port());
  client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(client.read_until("\r\n\r\n"));
  EXPECT_TRUE(client.read_until(": keepalive\n\n"));
}

TEST_F(HttpServerTest, ASlowReaderIsBoundedAndThenCutOff) {
  ServerOptions options;
  options.max_backlog_bytes = 1 << 20;
  start(options);
  LoopbackClient client(port(), 4096);
  client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(wait_for_held(1));
  const std::string piece(64 << 10, 's');
  bool was_congested = false;
  for (int i = 0; i < 400; ++i) {
    on_io([&] {
      held_[0]->write(piece);
      was_congested = was_congested || held_[0]->congested();
    });
  }
  EXPECT_TRUE(was_congested);
  EXPECT_EQ(wait_for_disconnect(), Disconnect::overflow);
  EXPECT_TRUE(wait_for_no_exchange());
}

TEST_F(HttpServerTest, AReaderThatStallsIsCutOff) {
  ServerOptions options;
  options.write_stall_timeout = milliseconds(80);
  start(options);
  LoopbackClient client(port(), 4096);
  client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(wait_for_held(1));
  on_io([&] { held_[0]->write(std::string(6 << 20, 's')); });
  EXPECT_EQ(wait_for_disconnect(), Disconnect::stalled);
}

TEST_F(HttpServerTest, CongestionEndsWhenTheClientReads) {
  start();
  LoopbackClient client(port(), 4096);
  client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(wait_for_held(1));
  std::atomic<int> writable{0};
  on_io([&] {
    held_[0]->on_writable([&] { ++writable; });
    held_[0]->write(std::string(6 << 20, 's'));
    EXPECT_TRUE(held_[0]->congested());
    held_[0]->write("tail");
  });
  EXPECT_EQ(writable.load(), 0);
  EXPECT_TRUE(client.read_until("tail"));
  for (int i = 0; i < 300 && writable.load() == 0; ++i)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(writable.load(), 1);
  on_io([&] { EXPECT_FALSE(held_[0]->congested()); });
}

TEST_F(HttpServerTest, ServesHundredsOfStreamsWhileAThirdOfTheClientsLeave) {
  start();
  constexpr int kStreams = 240;
  std::vector<std::unique_ptr<LoopbackClient>> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<LoopbackClient>(port()));
    clients.back()->send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  }
  ASSERT_TRUE(wait_for_held(kStreams));
  std::string expected;
  for (int round = 0; round < 20; ++round) {
    if (round == 5) {
      for (int i = 0; i < kStreams; i += 3) clients[static_cast<size_t>(i)]->reset();
    }
    const std::string event = "data: " + std::to_string(round) + "\n\n";
    expected += event;
    on_io([&] {
      for (const auto& exchange : held_) exchange->write(event);
    });
  }
  on_io([&] {
    for (const auto& exchange : held_) exchange->end_stream(false);
  });
  for (int i = 0; i < kStreams; ++i) {
    if (i % 3 == 0) continue;
    const ClientResponse response = clients[static_cast<size_t>(i)]->read_response();
    ASSERT_TRUE(response.complete) << i;
    ASSERT_EQ(response.body, expected) << i;
  }
  EXPECT_TRUE(wait_for_no_exchange());
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(gone_.size(), kStreams / 3);
}

TEST_F(HttpServerTest, DrainClosesIdleConnectionsAndFinishesRunningAnswers) {
  start();
  LoopbackClient idle(port()), busy(port());
  EXPECT_EQ(idle.request("POST", "/echo", "a").status, 200);
  busy.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(wait_for_held(1));
  server_->stop_accepting();
  EXPECT_TRUE(idle.wait_for_end());
  on_io([&] {
    held_[0]->write("data: end\n\n");
    held_[0]->end_stream(false);
  });
  EXPECT_EQ(busy.read_response().body, "data: end\n\n");
  EXPECT_TRUE(busy.wait_for_end());
  EXPECT_FALSE(LoopbackClient(port()).connected());
}

TEST_F(HttpServerTest, StopTellsOpenExchanges) {
  start();
  LoopbackClient client(port());
  client.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(wait_for_held(1));
  server_->stop();
  EXPECT_EQ(wait_for_disconnect(), Disconnect::stopped);
  EXPECT_TRUE(client.wait_for_end());
}

TEST(HttpServer, ListensOnAUnixSocketAndRefusesATakenOne) {
  ServerOptions options;
  options.uds = testing::TempDir() + "millrace_net_" + std::to_string(::getpid());
  const auto handler = [](std::shared_ptr<Exchange> exchange) { exchange->respond({}); };
  HttpServer first(options, handler), second(options, handler);
  ASSERT_TRUE(first.start().ok());
  EXPECT_FALSE(second.start().ok());
  first.stop();
  HttpServer third(options, handler);
  EXPECT_TRUE(third.start().ok());
}

TEST(HttpServer, SaysWhyItCannotListen) {
  ServerOptions options;
  options.host = "not-an-address.invalid";
  HttpServer server(options, [](std::shared_ptr<Exchange>) {});
  EXPECT_NE(status_message(server.start()).find("not-an-address"), std::string::npos);
}

}  // namespace
}  // namespace millrace::net
