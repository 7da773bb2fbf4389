#include "engine/sched/scheduler.h"

#include <gtest/gtest.h>

#include "tests/engine/sched/harness.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Chunking : public ::testing::TestWithParam<std::tuple<int, int, int>> {};

// Every budget and every boundary of a prompt give the tokens and scores of the unchunked run.
TEST_P(Chunking, AnswersDoNotDependOnBudgetDepthOrWindow) {
  const auto [budget, depth, window] = GetParam();
  HarnessOptions o;
  o.budget = budget;
  o.depth = depth;
  o.groups = {{0, 600}};
  if (window > 0) o.groups.push_back({window, 64});
  Harness h(o);
  RequestId id = 1;
  for (const int64_t size : {int64_t{1}, int64_t{15}, int64_t{16}, int64_t{17}, int64_t{32},
                             int64_t{33}, int64_t{budget - 1}, int64_t{budget}, int64_t{budget + 1},
                             int64_t{2 * budget}, int64_t{1600}}) {
    if (size < 1) continue;
    for (const int32_t scores : {-1, 0}) {
      Request r = request(id, text(size, id), 5);
      r.sampling.prompt_logprobs = scores;
      ASSERT_TRUE(h.add(r).ok());
      ++id;
      ASSERT_NO_FATAL_FAILURE(h.run());
      // Again, now that all full blocks are cached: at least one row is computed.
      r.id = id++;
      const int64_t before = h.oracle.rows_computed();
      ASSERT_TRUE(h.add(r).ok());
      ASSERT_NO_FATAL_FAILURE(h.run());
      const int64_t hit = scores >= 0 ? 0 : (size - 1) / 16 * 16;
      EXPECT_EQ(h.cached[r.id], hit);
      // With two steps in flight the end by max_tokens is foreseen: no row is wasted.
      EXPECT_EQ(h.oracle.rows_computed() - before, size - hit + 4);
    }
  }
  h.expect_all_answers();
  h.expect_idle();
}

INSTANTIATE_TEST_SUITE_P(All, Chunking,
                         ::testing::Combine(::testing::Values(1, 15, 16, 17, 64),
                                            ::testing::Values(1, 2),
                                            ::testing::Values(0, 1, 5, 16, 40)));

TEST(Scheduler, LongPromptAmongShortOnes) {
  HarnessOptions o;
  o.groups = {{0, 2400}};
  o.max_num_seqs = 16;
  Harness h(o);
  for (RequestId id = 1; id <= 16; ++id)
    ASSERT_TRUE(h.add(request(id, text(id % 8 == 0 ? 16'384 : 5, id), 20)).ok());
  for (int i = 0; i < 20; ++i) h.step();
  h.cancel(8);  // between chunks
  ASSERT_NO_FATAL_FAILURE(h.run());
  EXPECT_EQ(h.answers[8].finish, Finish::aborted);
  h.requests.erase(8);
  h.expect_all_answers();
  h.expect_idle();
}

TEST(Scheduler, ShortRowsAreNotHeldUpByALongPrompt) {
  HarnessOptions o;
  o.depth = 1;
  Harness h(o);
  ASSERT_TRUE(h.add(request(1, text(3, 1), 30)).ok());
  h.step();
  ASSERT_TRUE(h.add(request(2, text(1000, 2), 3)).ok());
  for (int i = 1; i <= 10; ++i) {
    h.step();
    EXPECT_EQ(h.answers[1].tokens.size(), static_cast<size_t>(1 + i)) << "one token a step";
  }
  ASSERT_NO_FATAL_FAILURE(h.run());
  h.expect_all_answers();
}

TEST(Scheduler, RefusesWhatAnEmptyPoolCannotHold) {
  HarnessOptions o;
  o.max_model_len = 4096;
  o.groups = {{0, 64}};
  Harness h(o);
  const Status refused = h.add(request(1, text(1500, 1), 1));
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status_message(refused).find("1500"), std::string::npos);
  EXPECT_NE(status_message(refused).find("1024"), std::string::npos);
  // Exactly full, and one too many: the last token generated is never fed back.
  EXPECT_TRUE(h.add(request(2, text(1000, 2), 25)).ok());
  EXPECT_FALSE(h.add(request(3, text(1000, 3), 26)).ok());
  EXPECT_TRUE(h.add(request(4, text(10, 4), 10)).ok());
  ASSERT_NO_FATAL_FAILURE(h.run());
  h.expect_all_answers();
  h.expect_idle();
}

TEST(Scheduler, RefusesBadRequests) {
  HarnessOptions o;
  o.max_model_len = 32;
  Harness h(o);
  EXPECT_FALSE(h.add(request(1, {}, 1)).ok());
  EXPECT_FALSE(h.add(request(1, {-1}, 1)).ok());
  EXPECT_FALSE(h.add(request(1, {static_cast<Token>(oracle::kVocab)}, 1)).ok());
  EXPECT_FALSE(h.add(request(1, {1}, -1)).ok());
  EXPECT_FALSE(h.add(request(1, text(32, 1), 1)).ok());
  EXPECT_FALSE(h.add(request(1, text(33, 1), 0)).ok());
  EXPECT_TRUE(h.add(request(1, text(32, 1), 0)).ok());
  EXPECT_TRUE(h.add(request(2, text(31, 1), 1)).ok());
  // max_tokens past the context limit ends there.
  EXPECT_TRUE(h.add(request(3, text(30, 1), 100)).ok());
  ASSERT_NO_FATAL_FAILURE(h.run());
  EXPECT_EQ(h.answers[3].tokens.size(), 2u);
  EXPECT_EQ(h.answers[3].finish, Finish::length);
}

TEST(Scheduler, TwoThatDoNotFitTogetherBothFinish) {
  HarnessOptions o;
  o.groups = {{0, 7}};
  o.budget = 16;
  Harness h(o);
  ASSERT_TRUE(h.add(request(1, text(64, 1), 16)).ok());
  ASSERT_TRUE(h.add(request(2, text(48, 2), 16)).ok());
  ASSERT_NO_FATAL_FAILURE(h.run());
  h.expect_all_answers();
  h.expect_idle();
}

TEST(Scheduler, PreemptedSequencesGoOnWhereTheyWere) {
  for (const int depth : {1, 2}) {
    HarnessOptions o;
    o.groups = {{0, 9}};
    o.depth = depth;
    Harness h(o);
    for (RequestId id = 1; id <= 4; ++id) ASSERT_TRUE(h.add(request(id, text(10, id), 100)).ok());
    ASSERT_NO_FATAL_FAILURE(h.run());
    EXPECT_GE(h.scheduler.counters().preemptions, 2);
    h.expect_all_answers();
    h.expect_idle();
  }
}

TEST(Scheduler, SaltsNeverShareABlock) {
  Harness h({});
  const std::vector<Token> prompt = text(100, 1);
  RequestId id = 0;
  for (const int32_t cached : {0, 96})
    for (const char* salt : {"", "A", "B", "AA"}) {
      Request r = request(++id, prompt, 3);
      r.cache_salt = salt;
      ASSERT_TRUE(h.add(r).ok());
      ASSERT_NO_FATAL_FAILURE(h.run());
      EXPECT_EQ(h.cached[id], cached) << salt;
    }
  h.expect_all_answers();
}

TEST(Scheduler, EqualPromptsAtOnceAreComputedOnce) {
  HarnessOptions o;
  o.max_num_seqs = 32;
  o.budget = 32;
  Harness h(o);
  for (RequestId id = 1; id <= 20; ++id) ASSERT_TRUE(h.add(request(id, text(200, 7), 4)).ok());
  // Something else is not held up behind those that wait.
  ASSERT_TRUE(h.add(request(21, text(20, 8), 4)).ok());
  ASSERT_NO_FATAL_FAILURE(h.run());
  EXPECT_EQ(h.oracle.rows_computed(), 200 + 3 + 19 * (8 + 3) + 20 + 3);
  EXPECT_EQ(h.cached[20], 192);
  h.expect_all_answers();
  h.expect_idle();
}

TEST(Scheduler, WhoComputesThePrefixMayVanish) {
  HarnessOptions o;
  o.budget = 32;
  Harness h(o);
  for (RequestId id = 1; id <= 3; ++id) ASSERT_TRUE(h.add(request(id, text(200, 7), 4)).ok());
  h.step();
  h.step();
  EXPECT_EQ(h.scheduler.num_running(), 1);
  h.cancel(1);
  ASSERT_NO_FATAL_FAILURE(h.run());
  h.expect_answer(2);
  h.expect_answer(3);
  h.expect_idle();
}

TEST(Scheduler, BetterClassRunsFirstAndDisplacesWorse) {
  HarnessOptions o;
  o.max_num_seqs = 2;
  Harness h(o);
  for (RequestId id = 1; id <= 3; ++id) {
    Request r = request(id, text(20, id), 50);
    r.priority = 5;
    ASSERT_TRUE(h.add(r).ok());
  }
  for (int i = 0; i < 10; ++i) h.step();
  ASSERT_TRUE(h.add(request(4, text(20, 4), 5)).ok());
  for (int i = 0; i < 12; ++i) h.step();
  EXPECT_EQ(h.answers[4].finish, Finish::length) << "served at once although all slots were taken";
  ASSERT_NO_FATAL_FAILURE(h.run());
  EXPECT_EQ(h.scheduler.counters().preemptions, 1);
  h.expect_all_answers();
  h.expect_idle();
}

TEST(Scheduler, DeadlinesEndQueuedAndRunning) {
  HarnessOptions o;
  o.max_num_seqs = 1;
  Harness h(o);
  Request running = request(1, text(20, 1), 1000);
  running.deadline = h.now + milliseconds(10);
  Request queued = request(2, text(20, 2), 10);
  queued.deadline = h.now + milliseconds(5);
  Request last = request(3, text(20, 3), 10);
  last.deadline = h.now + seconds(100);
  for (const Request& r : {running, queued, last}) ASSERT_TRUE(h.add(r).ok());
  ASSERT_NO_FATAL_FAILURE(h.run());
  EXPECT_EQ(h.answers[1].finish, Finish::deadline);
  EXPECT_GT(h.answers[1].tokens.size(), 3u);
  EXPECT_EQ(h.answers[2].finish, Finish::deadline);
  EXPECT_TRUE(h.answers[2].tokens.empty());
  h.expect_answer(3);
  h.expect_idle();
}

TEST(Scheduler, CancelInEveryPhaseFreesWithinOneStep) {
  // Steps before the cancel: queued, between chunks, at the first token, in decode.
  for (int steps = 0; steps < 12; ++steps) {
    HarnessOptions o;
    o.budget = 16;
    o.prefix_caching = false;
    Harness h(o);
    ASSERT_TRUE(h.add(request(1, text(100, 1), 1000)).ok());
    for (int i = 0; i < steps; ++i) h.step();
    h.cancel(1);
    h.cancel(1);
    h.cancel(99);
    EXPECT_EQ(h.scheduler.num_running(), 0);
    const size_t tokens = h.answers[1].tokens.size();
    while (h.scheduler.num_in_flight() > 0) h.step();
    EXPECT_EQ(h.answers[1].tokens.size(), tokens);
    EXPECT_EQ(h.answers[1].finish, Finish::aborted);
    EXPECT_EQ(h.scheduler.counters().finished[static_cast<size_t>(Finish::aborted)], 1);
    h.expect_idle();
  }
}

TEST(Scheduler, AnIdMayComeBackAtOnceAfterItsEnd) {
  HarnessOptions o;
  o.max_num_seqs = 2;
  Harness h(o);
  Scheduler::Events events;
  int64_t aborted = 0;
  for (int i = 0; i < 1000; ++i) {
    h.scheduler.add(request(7, text(40, static_cast<uint64_t>(i)), 50), h.now);
    for (int k = i % 3; k > 0; --k) {
      if (StepPlan plan = h.scheduler.plan(h.now, events); !plan.sequences.empty())
        h.oracle.submit(std::move(plan));
      if (h.oracle.in_flight() == 2) h.scheduler.apply(h.oracle.take(), events);
    }
    h.scheduler.cancel(7, events);
    for (const TokenEvent& e : events) aborted += e.finish == Finish::aborted;
    events.clear();
  }
  EXPECT_EQ(aborted, 1000);
  while (h.oracle.in_flight() > 0) h.scheduler.apply(h.oracle.take(), events);
  h.expect_idle();
}

TEST(Scheduler, EndsAtEosAndStopTokensButNotBeforeMinTokens) {
  for (const int depth : {1, 2}) {
    HarnessOptions o;
    o.depth = depth;
    o.eos = {2, 7, 11, 12, 13, 14, 15};
    Harness h(o);
    for (RequestId id = 1; id <= 40; ++id) {
      Request r = request(id, text(3 + static_cast<int64_t>(id), id), 30);
      if (id % 4 == 1) r.stop.min_tokens = 5;
      if (id % 4 == 2) r.stop.ignore_eos = true;
      if (id % 4 == 3) r.stop.stop_tokens = {20, 21, 22, 23, 24, 25};
      if (id % 8 == 1) r.stop.min_tokens = 50;  // above max_tokens
      ASSERT_TRUE(h.add(r).ok());
    }
    ASSERT_NO_FATAL_FAILURE(h.run());
    h.expect_all_answers();
    EXPECT_EQ(h.answers[9].tokens.size(), 30u);
    EXPECT_GT(h.scheduler.counters().finished[static_cast<size_t>(Finish::stop)], 15);
    h.expect_idle();
  }
}

TEST(Scheduler, OnlyScoresAreWanted) {
  Harness h({});
  RequestId id = 0;
  for (const int64_t size : {1, 2, 16, 17, 64, 65, 66, 300})
    for (const int32_t scores : {-1, 0}) {
      ++id;
      Request r = request(id, text(size, id), 0);
      r.sampling.prompt_logprobs = scores;
      ASSERT_TRUE(h.add(r).ok());
      ASSERT_NO_FATAL_FAILURE(h.run());
      r.id = ++id;
      ASSERT_TRUE(h.add(r).ok());
      ASSERT_NO_FATAL_FAILURE(h.run());
    }
  h.expect_all_answers();
  h.expect_idle();
}

TEST(Scheduler, AFailedSequenceEndsAlone) {
  Harness h({});
  for (RequestId id = 1; id <= 3; ++id) ASSERT_TRUE(h.add(request(id, text(20, id), 20)).ok());
  h.step();
  h.step();
  h.oracle.fail_sample(1);
  ASSERT_NO_FATAL_FAILURE(h.run());
  int failed = 0;
  for (RequestId id = 1; id <= 3; ++id) {
    if (h.answers[id].finish == Finish::error) {
      ++failed;
    } else {
      h.expect_answer(id);
    }
  }
  EXPECT_EQ(failed, 1);
  h.expect_idle();
}

TEST(Scheduler, TokensAreAccountedFor) {
  Harness h({});
  for (RequestId id = 1; id <= 10; ++id) ASSERT_TRUE(h.add(request(id, text(30, id % 3), 10)).ok());
  for (int i = 0; i < 4; ++i) h.step();
  h.cancel(2);
  ASSERT_NO_FATAL_FAILURE(h.run());
  const SchedulerCounters& c = h.scheduler.counters();
  int64_t generated = 0;
  for (const auto& [id, a] : h.answers) generated += static_cast<int64_t>(a.tokens.size());
  EXPECT_EQ(c.generated_tokens, generated);
  EXPECT_EQ(c.computed_tokens, h.oracle.rows_computed());
  EXPECT_EQ(c.started_requests, 10);
  EXPECT_EQ(c.started_tokens, 300);
  EXPECT_EQ(c.prompt_tokens, 300);
  int64_t cached = 0;
  for (const auto& [id, n] : h.cached) cached += n;
  EXPECT_EQ(c.prefix_hits, cached);
  EXPECT_EQ(c.finished[static_cast<size_t>(Finish::length)], 9);
  EXPECT_EQ(c.finished[static_cast<size_t>(Finish::aborted)], 1);
}

}  // namespace
}  // namespace millrace
