#include "server/bench/load_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/server/bench/scripted_server.h"

namespace millrace::bench {
namespace {

using testing::HasSubstr;

constexpr std::string_view kToken =
    "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n";
constexpr std::string_view kDone = "data: [DONE]\n\n";
constexpr std::string_view kChunkedHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
constexpr std::string_view kLastChunk = "0\r\n\r\n";

std::string chunk(std::string_view bytes) {
  char size[16];
  std::snprintf(size, sizeof(size), "%zx\r\n", bytes.size());
  return size + std::string(bytes) + "\r\n";
}

std::string whole_answer(int tokens) {
  std::string out(kChunkedHead);
  for (int i = 0; i < tokens; ++i) out += chunk(kToken);
  return out + chunk(kDone) + std::string(kLastChunk);
}

RunResult run_against(const std::string& url, int count, RunOptions options = {},
                      std::vector<double> due = {}) {
  const auto target = resolve_target(url, "key");
  EXPECT_TRUE(target.ok()) << target.status();
  std::vector<LoadRequest> requests(static_cast<size_t>(count));
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].path = kCompletionsPath;
    requests[i].body = "{}";
    requests[i].prompt_tokens = 5;
    if (i < due.size()) requests[i].due_s = due[i];
  }
  return run_load(*target, requests, options);
}

Answer answer_from(ScriptedServer::Script script, double timeout_s = 20.0) {
  const ScriptedServer server(std::move(script));
  RunOptions options;
  options.timeout_s = timeout_s;
  return run_against(server.url(), 1, options).requests[0].answer;
}

Answer answer_of(const std::string& bytes) {
  return answer_from([&](ScriptedPeer& peer, const std::string&) {
    peer.send(bytes);
    return false;
  });
}

TEST(LoadRun, ReadsChunkedAnswersWhereverTheyAreCut) {
  for (const size_t size : {1u, 2u, 7u, 64u}) {
    const Answer answer = answer_from([&](ScriptedPeer& peer, const std::string&) {
      peer.send_in_pieces(whole_answer(3), size);
      return true;
    });
    EXPECT_EQ(answer.failure, "") << answer.message;
    EXPECT_EQ(answer.tokens, 3);
  }
  // An event over two chunks, and two events in one.
  const std::string_view half = kToken.substr(0, 20), rest = kToken.substr(20);
  const Answer answer = answer_of(std::string(kChunkedHead) + chunk(half) +
                                  chunk(std::string(rest) + std::string(kToken)) + chunk(kDone) +
                                  std::string(kLastChunk));
  EXPECT_EQ(answer.failure, "");
  EXPECT_EQ(answer.tokens, 2);
}

TEST(LoadRun, TakesOtherFramingsToo) {
  const std::string body = std::string(kToken) + std::string(kDone);
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
  EXPECT_EQ(answer_of(head + "\r\n" + body).failure, "");
  EXPECT_EQ(answer_of(head + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body)
                .failure,
            "");
}

TEST(LoadRun, TimesAreThoseOfTheReads) {
  const Answer answer = answer_from([](ScriptedPeer& peer, const std::string&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    peer.send(std::string(kChunkedHead) + chunk(kToken));
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    peer.send(chunk(kToken) + chunk(kDone) + std::string(kLastChunk));
    return true;
  });
  EXPECT_GE(answer.first_s, 0.060);
  ASSERT_EQ(answer.gaps_s.size(), 1u);
  EXPECT_GE(answer.gaps_s[0], 0.030);
  EXPECT_NEAR(answer.first_s + answer.gaps_s[0], answer.e2e_s(), 1e-9);
}

TEST(LoadRun, SendsWhatWasAskedFor) {
  std::string seen;
  answer_from([&](ScriptedPeer& peer, const std::string& request) {
    seen = request;
    peer.send(whole_answer(1));
    return true;
  });
  EXPECT_THAT(seen, testing::StartsWith("POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:"));
  EXPECT_THAT(seen, HasSubstr("\r\nAuthorization: Bearer key\r\n"));
  EXPECT_THAT(seen, testing::EndsWith("\r\nContent-Length: 2\r\n\r\n{}"));
}

TEST(LoadRun, ClassesEveryFailure) {
  EXPECT_EQ(answer_of("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}").failure,
            "http_429");
  EXPECT_EQ(answer_of("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n").failure, "http_503");
  EXPECT_EQ(answer_of(std::string(kChunkedHead) + chunk(kToken)).failure, "stream_broken");
  EXPECT_EQ(answer_of("").failure, "stream_broken");
  EXPECT_EQ(answer_of("SSH-2.0-OpenSSH\r\n\r\n").failure, "stream_broken");
  EXPECT_EQ(answer_of(std::string(kChunkedHead) + "zz\r\n").failure, "stream_broken");
  EXPECT_EQ(answer_of(std::string(kChunkedHead) + chunk(kToken) + std::string(kLastChunk)).failure,
            "missing_done");
  EXPECT_EQ(answer_of(std::string(kChunkedHead) + chunk(kToken) +
                      chunk("data: {\"error\":{\"message\":\"out of cache\"}}\n\n") +
                      std::string(kLastChunk))
                .failure,
            "error_event");
  const auto hang = [](ScriptedPeer& peer, const std::string&) {
    peer.send(std::string(kChunkedHead) + chunk(kToken));
    peer.hang();
    return false;
  };
  EXPECT_EQ(answer_from(hang, 0.1).failure, "timeout");
}

TEST(LoadRun, NamesARefusedConnection) {
  std::string url;
  {
    const ScriptedServer gone([](ScriptedPeer&, const std::string&) { return false; });
    url = gone.url();
  }
  const RunResult run = run_against(url, 3);
  for (const RequestResult& request : run.requests) EXPECT_EQ(request.answer.failure, "connect");
  EXPECT_FALSE(http_get(*resolve_target(url, ""), "/v1/models", std::chrono::seconds(5)).ok());
}

TEST(LoadRun, AClosedLoopKeepsItsConcurrencyAndItsConnections) {
  std::atomic<int> running = 0, most = 0;
  const ScriptedServer server([&](ScriptedPeer& peer, const std::string&) {
    const int now = ++running;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) continue;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    --running;
    peer.send(whole_answer(2));
    return true;
  });
  size_t progress = 0;
  RunOptions options;
  options.max_concurrency = 4;
  options.on_progress = [&](size_t done, size_t total) {
    EXPECT_EQ(done, ++progress);
    EXPECT_EQ(total, 24u);
  };
  const RunResult run = run_against(server.url(), 24, options);
  EXPECT_EQ(run.peak_concurrency, 4);
  EXPECT_LE(most, 4);
  EXPECT_EQ(server.connections(), 4);
  EXPECT_EQ(progress, 24u);
  for (const RequestResult& request : run.requests) {
    EXPECT_TRUE(request.ok()) << request.answer.failure;
    EXPECT_EQ(request.answer.tokens, 2);
    EXPECT_EQ(request.prompt_tokens, 5);
  }
}

TEST(LoadRun, ReplacesAConnectionThatTheServerClosed) {
  const ScriptedServer server([](ScriptedPeer& peer, const std::string&) {
    peer.send(whole_answer(1));
    return false;  // without having said so
  });
  const RunResult run = run_against(server.url(), 2, {}, {0.0, 0.2});
  EXPECT_TRUE(run.requests[1].ok()) << run.requests[1].answer.message;
  EXPECT_EQ(server.connections(), 2);
}

TEST(LoadRun, SendsAgainWhatAClosingConnectionDidNotTake) {
  std::atomic<int> answered = 0;
  const ScriptedServer server([&](ScriptedPeer& peer, const std::string&) {
    // The second request on a connection meets its end.
    thread_local int requests = 0;
    if (++requests == 2) return false;
    ++answered;
    return peer.send(whole_answer(1));
  });
  RunOptions options;
  options.max_concurrency = 1;
  const RunResult run = run_against(server.url(), 3, options);
  for (const RequestResult& request : run.requests)
    EXPECT_TRUE(request.ok()) << request.answer.message;
  EXPECT_EQ(answered, 3);
  EXPECT_FALSE(run.requests[0].resent);
  EXPECT_TRUE(run.requests[1].resent);
  EXPECT_EQ(server.connections(), 3);
}

TEST(LoadRun, AnOpenLoopStartsWhenRequestsAreDue) {
  const ScriptedServer server([](ScriptedPeer& peer, const std::string&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    peer.send(whole_answer(1));
    return true;
  });
  const RunResult run = run_against(server.url(), 3, {}, {0.0, 0.05, 0.1});
  EXPECT_EQ(run.peak_concurrency, 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_GE(run.requests[i].start_s, 0.05 * static_cast<double>(i));
    EXPECT_TRUE(run.requests[i].ok());
  }
  EXPECT_GE(run.duration_s, 0.25);
}

TEST(LoadRun, AnInterruptKeepsWhatWasMeasured) {
  const ScriptedServer server(
      [n = std::make_shared<std::atomic<int>>(0)](ScriptedPeer& peer, const std::string&) {
        if ((*n)++ == 0) return peer.send(whole_answer(4));
        ::kill(::getpid(), SIGINT);
        peer.hang();
        return false;
      });
  RunOptions options;
  options.max_concurrency = 1;
  const RunResult run = run_against(server.url(), 3, options);
  EXPECT_TRUE(run.interrupted);
  EXPECT_TRUE(run.requests[0].ok());
  EXPECT_EQ(run.requests[0].answer.tokens, 4);
  EXPECT_FALSE(run.requests[1].finished);
  EXPECT_FALSE(run.requests[2].finished);
  EXPECT_GT(run.duration_s, 0.0);
}

TEST(Target, IsReadFromAUrl) {
  const auto target = resolve_target("http://127.0.0.1:81/a/b/", "");
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target->request("/v1/models", ""),
            "GET /a/b/v1/models HTTP/1.1\r\nHost: 127.0.0.1:81\r\n"
            "User-Agent: millrace-bench\r\nAccept: */*\r\n\r\n");
  EXPECT_EQ(resolve_target("http://[::1]", "")->port, "80");
  for (const char* bad :
       {"127.0.0.1:8000", "https://127.0.0.1", "http://", "http://a:b", "http://127.0.0.1:99999",
        "http://me@127.0.0.1", "http://:80", "http://127.0.0.1/a b", "http:///v1"})
    EXPECT_THAT(status_message(resolve_target(bad, "").status()), HasSubstr("it must be")) << bad;
  EXPECT_FALSE(resolve_target("http://127.0.0.1", "a\r\nb").ok());
}

}  // namespace
}  // namespace millrace::bench
