// Harness: drives a Scheduler against the PlanOracle, with one or two steps in flight and a clock
// that the test turns, and gathers every request's answer.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "engine/sched/scheduler.h"
#include "tests/engine/sched/plan_oracle.h"

namespace millrace {

inline std::vector<Token> text(int64_t length, uint64_t seed) {
  std::vector<Token> tokens;
  uint64_t h = seed;
  for (int64_t i = 0; i < length; ++i) {
    h = oracle::mix(h, static_cast<uint64_t>(i));
    tokens.push_back(static_cast<Token>(h % oracle::kVocab));
  }
  return tokens;
}

inline Request request(RequestId id, std::vector<Token> prompt, int32_t max_tokens) {
  Request r;
  r.id = id;
  r.prompt = std::move(prompt);
  r.stop.max_tokens = max_tokens;
  return r;
}

struct HarnessOptions {
  int64_t max_model_len = 1 << 20;
  int max_num_seqs = 8;
  int budget = 64;
  int depth = 2;  // steps in flight
  bool prefix_caching = true;
  std::vector<Token> eos = {};
  std::vector<KvGroupInfo> groups = {{0, 256}};
};

class Harness {
 public:
  explicit Harness(HarnessOptions o)
      : options_(std::move(o)), oracle(info(options_)), scheduler(scheduler_options(options_)) {}

  static ExecutorInfo info(const HarnessOptions& o) {
    ExecutorInfo i;
    i.vocab = oracle::kVocab;
    i.block_size = 16;
    i.max_num_seqs = o.max_num_seqs;
    i.max_num_batched_tokens = o.budget;
    i.groups = o.groups;
    return i;
  }
  static SchedulerOptions scheduler_options(const HarnessOptions& o) {
    SchedulerOptions s;
    s.max_model_len = o.max_model_len;
    s.max_num_seqs = o.max_num_seqs;
    s.max_num_batched_tokens = o.budget;
    s.vocab = oracle::kVocab;
    s.eos_tokens = o.eos;
    s.cache.prefix_caching = o.prefix_caching;
    for (const KvGroupInfo& g : o.groups) s.cache.groups.push_back({g.window, g.num_blocks});
    return s;
  }

  Status add(Request r) {
    Status status = scheduler.check(r);
    if (!status.ok()) return status;
    requests[r.id] = r;
    scheduler.add(std::move(r), now);
    return status;
  }
  void cancel(RequestId id) {
    scheduler.cancel(id, events_);
    collect();
  }
  // Plans as far as allowed, then takes one result. False: nothing to do.
  bool step() {
    bool planned = true;
    while (planned && oracle.in_flight() < options_.depth) {
      StepPlan plan = scheduler.plan(now, events_);
      planned = !plan.sequences.empty();
      if (planned) oracle.submit(std::move(plan));
    }
    collect();
    check_accounting();
    now += std::chrono::milliseconds(1);
    if (oracle.in_flight() == 0) return false;
    scheduler.apply(oracle.take(), events_);
    collect();
    check_accounting();
    return true;
  }
  // Until nothing is left; fails if there is work but no progress.
  void run() {
    int idle_turns = 0;
    while (scheduler.num_live() > 0 || scheduler.num_in_flight() > 0) {
      idle_turns = step() ? 0 : idle_turns + 1;
      ASSERT_LT(idle_turns, 3) << "work waits, but nothing is planned";
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  void expect_idle() {
    EXPECT_TRUE(scheduler.idle());
    EXPECT_EQ(scheduler.cache().used(), 0);
    if (!options_.prefix_caching) {
      EXPECT_EQ(scheduler.cache().cached(), 0);
    }
    scheduler.reset_prefix_cache();
    EXPECT_EQ(scheduler.cache().cached(), 0);
    EXPECT_EQ(scheduler.cache().num_nodes(), 0);
  }
  void expect_answer(RequestId id) {
    const oracle::Answer right = oracle::expected_answer(requests.at(id), options_.eos);
    const oracle::Answer& got = answers[id];
    EXPECT_EQ(got.tokens, right.tokens) << "request " << id;
    EXPECT_EQ(got.finish, right.finish) << "request " << id;
    ASSERT_EQ(got.scores.size(), right.scores.size()) << "request " << id;
    for (size_t i = 0; i < right.scores.size(); ++i) {
      EXPECT_EQ(got.scores[i].token, right.scores[i].token);
      EXPECT_EQ(got.scores[i].logprob, right.scores[i].logprob);
    }
  }
  void expect_all_answers() {
    for (const auto& [id, r] : requests) expect_answer(id);
  }

  const HarnessOptions options_;
  oracle::PlanOracle oracle;
  Scheduler scheduler;
  TimePoint now = TimePoint() + std::chrono::hours(1);
  std::map<RequestId, Request> requests;
  std::map<RequestId, oracle::Answer> answers;
  std::map<RequestId, int32_t> cached;  // cached_tokens of the first event

 private:
  void collect() {
    for (TokenEvent& e : events_) {
      oracle::Answer& a = answers[e.id];
      EXPECT_EQ(a.finish, Finish::none) << "an event after the final one of " << e.id;
      EXPECT_EQ(cached.contains(e.id), e.cached_tokens < 0) << "on the first event, and only there";
      cached.try_emplace(e.id, e.cached_tokens);
      if (e.token >= 0) a.tokens.push_back(e.token);
      for (PromptScore& s : e.prompt_scores) a.scores.push_back(s);
      a.finish = e.finish;
    }
    events_.clear();
  }
  void check_accounting() {
    const SchedulerCounters& c = scheduler.counters();
    int64_t finished = 0;
    for (const int64_t n : c.finished) finished += n;
    EXPECT_EQ(static_cast<int64_t>(requests.size()), finished + scheduler.num_live());
    EXPECT_EQ(scheduler.num_live(), scheduler.num_running() + scheduler.num_waiting());
    EXPECT_LE(scheduler.cache().used() + scheduler.cache().cached(), scheduler.cache().total());
  }

  Scheduler::Events events_;
};

}  // namespace millrace
