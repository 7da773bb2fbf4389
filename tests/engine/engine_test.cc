#include "engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "tests/engine/sched/harness.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;

// The oracle behind the executor's interface. A test may hold results back.
class OracleExecutor final : public Executor {
 public:
  explicit OracleExecutor(ExecutorInfo info) : oracle_(std::move(info)) {}
  const ExecutorInfo& info() const override { return oracle_.info(); }
  void submit(StepPlan plan) override { oracle_.submit(std::move(plan)); }
  int in_flight() const override { return oracle_.in_flight(); }
  std::optional<StepResult> take_result(bool wait) override {
    std::unique_lock lock(mutex_);
    if (wait) open_.wait(lock, [this] { return !held_; });
    if (held_ || oracle_.in_flight() == 0) return std::nullopt;
    return oracle_.take();
  }
  void hold(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    open_.notify_all();
  }
  void fail_sample(int64_t n) { oracle_.fail_sample(n); }

 private:
  oracle::PlanOracle oracle_;  // engine thread
  std::mutex mutex_;
  std::condition_variable open_;
  bool held_ = false;
};

// Gathers events by request; safe to use from any thread.
class Receiver {
 public:
  EventSink sink() {
    return [this](std::vector<TokenEvent>&& events) {
      const std::lock_guard lock(mutex_);
      for (TokenEvent& e : events) {
        oracle::Answer& a = answers_[e.id];
        if (e.token >= 0) a.tokens.push_back(e.token);
        if (e.finish != Finish::none) {
          a.finish = e.finish;
          ++finals_[e.id];
          ++total_finals_;
        }
      }
      changed_.notify_all();
    };
  }
  bool wait_for_finals(int64_t n) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), [&] { return total_finals_ >= n; });
  }
  bool wait_for_tokens(RequestId id, size_t n) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30),
                             [&] { return answers_[id].tokens.size() >= n; });
  }
  oracle::Answer answer(RequestId id) {
    const std::lock_guard lock(mutex_);
    return answers_[id];
  }
  int finals(RequestId id) {
    const std::lock_guard lock(mutex_);
    return finals_[id];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, oracle::Answer> answers_;
  std::map<RequestId, int> finals_;
  int64_t total_finals_ = 0;
};

struct Fixture {
  explicit Fixture(HarnessOptions h = {}, EngineOptions o = {}) {
    auto e = std::make_unique<OracleExecutor>(Harness::info(h));
    executor = e.get();
    if (o.max_model_len == 0) o.max_model_len = h.max_model_len;
    o.max_num_batched_tokens = h.budget;
    engine = std::make_unique<Engine>(o, std::move(e), receiver.sink());
  }
  // Polls the statistics until `done` holds.
  template <typename F>
  bool eventually(F done) {
    for (int i = 0; i < 5000; ++i) {
      if (done(engine->stats())) return true;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return false;
  }
  Receiver receiver;
  OracleExecutor* executor = nullptr;
  std::unique_ptr<Engine> engine;
};

int64_t finished(const EngineStats& s) {
  return s.finished_stop + s.finished_length + s.finished_aborted + s.finished_deadline +
         s.finished_error;
}

TEST(Engine, AnswersAndCounts) {
  Fixture f;
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 20; ++id)
    requests.push_back(request(id, text(10 * static_cast<int64_t>(id), id), 12));
  for (const Request& r : requests) ASSERT_TRUE(f.engine->submit(r).ok());
  ASSERT_TRUE(f.receiver.wait_for_finals(20));
  for (const Request& r : requests) {
    EXPECT_EQ(f.receiver.answer(r.id).tokens, oracle::expected_answer(r, {}).tokens);
    EXPECT_EQ(f.receiver.finals(r.id), 1);
  }
  const EngineStats s = f.engine->stats();
  EXPECT_EQ(s.finished_length, 20);
  EXPECT_EQ(s.generated_tokens, 240);
  EXPECT_EQ(s.prompt_tokens, 10 * 210);
  EXPECT_EQ(s.running + s.waiting + s.kv_blocks_used, 0);
  EXPECT_EQ(s.kv_blocks_total, 256);
  EXPECT_GT(s.kv_blocks_cached, 0);
  int64_t steps = 0;
  for (const int64_t n : s.iteration_counts) steps += n;
  EXPECT_EQ(steps, s.steps);
  f.engine->reset_prefix_cache();
  EXPECT_TRUE(f.eventually([](const EngineStats& t) { return t.kv_blocks_cached == 0; }));
}

TEST(Engine, FullQueuesRefuseAtOnce) {
  EngineOptions o;
  o.max_num_queued_requests = 3;
  o.max_num_queued_tokens = 100;
  HarnessOptions h;
  h.max_num_seqs = 1;
  Fixture f(h, o);
  ASSERT_TRUE(f.engine->submit(request(1, text(10, 1), 1000)).ok());
  ASSERT_TRUE(f.receiver.wait_for_tokens(1, 1));
  f.executor->hold(true);
  ASSERT_TRUE(f.engine->submit(request(2, text(60, 2), 1)).ok());
  EXPECT_EQ(f.engine->submit(request(3, text(41, 3), 1)).code(),
            absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(f.engine->submit(request(4, text(39, 4), 1)).ok());
  ASSERT_TRUE(f.engine->submit(request(5, text(1, 5), 1)).ok());
  EXPECT_EQ(f.engine->submit(request(6, text(1, 6), 1)).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(f.engine->submit(request(2, text(1, 2), 1)).code(),
            absl::StatusCode::kResourceExhausted);
  f.executor->hold(false);
  ASSERT_TRUE(f.receiver.wait_for_finals(4));
  // The queue is empty again, and refused requests left no trace.
  ASSERT_TRUE(f.engine->submit(request(7, text(100, 7), 1)).ok());
  ASSERT_TRUE(f.receiver.wait_for_finals(5));
  EXPECT_EQ(finished(f.engine->stats()), 5);
}

TEST(Engine, OpenIdsAreUniqueAndBadRequestsRefused) {
  Fixture f;
  f.executor->hold(true);
  ASSERT_TRUE(f.engine->submit(request(1, text(10, 1), 5)).ok());
  EXPECT_EQ(f.engine->submit(request(1, text(10, 1), 5)).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(f.engine->submit(request(2, {}, 5)).code(), absl::StatusCode::kInvalidArgument);
  f.executor->hold(false);
  ASSERT_TRUE(f.receiver.wait_for_finals(1));
  EXPECT_TRUE(f.engine->submit(request(1, text(10, 1), 5)).ok());
  ASSERT_TRUE(f.receiver.wait_for_finals(2));
}

TEST(Engine, CancelFreesAndTheTokensStop) {
  HarnessOptions h;
  h.groups = {{0, 2000}};
  Fixture g(h);
  ASSERT_TRUE(g.engine->submit(request(1, text(20, 1), 20'000)).ok());
  ASSERT_TRUE(g.receiver.wait_for_tokens(1, 3));
  g.engine->cancel(1);
  g.engine->cancel(1);
  g.engine->cancel(77);
  ASSERT_TRUE(g.receiver.wait_for_finals(1));
  EXPECT_EQ(g.receiver.answer(1).finish, Finish::aborted);
  ASSERT_TRUE(g.eventually([](const EngineStats& s) { return s.kv_blocks_used == 0; }));
  const EngineStats s = g.engine->stats();
  EXPECT_EQ(s.running, 0);
  EXPECT_EQ(s.finished_aborted, 1);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(g.engine->stats().generated_tokens, s.generated_tokens);
}

TEST(Engine, OneFailureEndsOneRequest) {
  Fixture f;
  f.executor->fail_sample(0);
  for (RequestId id = 1; id <= 3; ++id)
    ASSERT_TRUE(f.engine->submit(request(id, text(10, id), 10)).ok());
  ASSERT_TRUE(f.receiver.wait_for_finals(3));
  const EngineStats s = f.engine->stats();
  EXPECT_EQ(s.finished_error, 1);
  EXPECT_EQ(s.finished_length, 2);
}

TEST(Engine, StopEndsEveryRequestOnceAndRefusesMore) {
  HarnessOptions h;
  h.groups = {{0, 4000}};
  Fixture f(h);
  for (RequestId id = 1; id <= 30; ++id)
    ASSERT_TRUE(f.engine->submit(request(id, text(10, id), 3000)).ok());
  ASSERT_TRUE(f.receiver.wait_for_tokens(1, 2));
  f.engine->stop();
  f.engine->stop();
  for (RequestId id = 1; id <= 30; ++id) {
    EXPECT_EQ(f.receiver.finals(id), 1);
    EXPECT_EQ(f.receiver.answer(id).finish, Finish::aborted);
  }
  EXPECT_EQ(f.engine->submit(request(31, {1}, 1)).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(f.engine->stats().kv_blocks_used, 0);
}

TEST(Engine, HealthTellsIdleFromStuck) {
  Fixture f;
  std::this_thread::sleep_for(milliseconds(450));
  EXPECT_LT(f.engine->stats().heartbeat_age_seconds, 0.4) << "an idle loop still turns";
  EXPECT_EQ(f.engine->stats().no_progress_seconds, 0.0);
  f.executor->hold(true);
  ASSERT_TRUE(f.engine->submit(request(1, text(10, 1), 5)).ok());
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_GT(f.engine->stats().no_progress_seconds, 0.2);
  f.executor->hold(false);
  ASSERT_TRUE(f.receiver.wait_for_finals(1));
  EXPECT_TRUE(f.eventually([](const EngineStats& s) { return s.no_progress_seconds == 0.0; }));
}

TEST(Engine, ManyThreadsSubmitCancelAndWatch) {
  HarnessOptions h;
  h.groups = {{0, 60}};
  Fixture f(h);
  std::atomic<int64_t> accepted = 0, refused = 0;
  std::atomic<bool> watching = true;
  std::thread watcher([&] {
    int64_t last = 0;
    while (watching) {
      const EngineStats s = f.engine->stats();
      EXPECT_GE(s.generated_tokens, last) << "counters never fall";
      EXPECT_LE(s.kv_blocks_used + s.kv_blocks_cached, s.kv_blocks_total);
      EXPECT_GE(s.kv_blocks_used, 0);
      last = s.generated_tokens;
      if (s.steps % 16 == 0) f.engine->reset_prefix_cache();
    }
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 150; ++i) {
        const RequestId id = static_cast<RequestId>(t * 1000 + i + 1);
        const auto length = static_cast<int64_t>(1 + random() % 80);
        (f.engine->submit(
                     request(id, text(length, random() % 4), static_cast<int32_t>(random() % 20)))
                 .ok()
             ? accepted
             : refused)++;
        if (random() % 3 == 0) f.engine->cancel(id - random() % 3);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(f.receiver.wait_for_finals(accepted));
  watching = false;
  watcher.join();
  EXPECT_EQ(refused, 0);
  EXPECT_TRUE(f.eventually([&](const EngineStats& s) {
    return finished(s) == accepted && s.running == 0 && s.waiting == 0 && s.kv_blocks_used == 0;
  }));
  for (int t = 0; t < 4; ++t)
    for (int i = 0; i < 150; ++i)
      EXPECT_EQ(f.receiver.finals(static_cast<RequestId>(t * 1000 + i + 1)), 1);
}

}  // namespace
}  // namespace millrace
