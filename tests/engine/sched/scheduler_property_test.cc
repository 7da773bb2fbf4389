// Random mixes of everything the scheduler does. Whatever the order, each request that is not
// cancelled gets exactly the answer it would have had alone, all blocks come back, and work never
// stands still.
#include <gtest/gtest.h>

#include <random>

#include "engine/sched/scheduler.h"
#include "tests/engine/sched/harness.h"

namespace millrace {
namespace {

class Mix : public ::testing::TestWithParam<int> {};

HarnessOptions random_options(std::mt19937_64& random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  HarnessOptions o;
  o.max_num_seqs = static_cast<int>(pick(1, 9));
  o.budget = static_cast<int>(pick(1, 3) == 1 ? pick(1, 4) : pick(5, 80));
  o.depth = static_cast<int>(pick(1, 2));
  o.prefix_caching = pick(0, 3) > 0;
  o.eos = {2, 7};
  const int64_t blocks = pick(0, 1) ? pick(2, 12) : pick(12, 60);
  switch (pick(0, 3)) {
    case 0: o.groups = {{0, blocks}}; break;
    case 1: o.groups = {{static_cast<int>(pick(1, 70)), blocks}}; break;
    case 2: o.groups = {{0, blocks}, {static_cast<int>(pick(1, 40)), pick(2, blocks)}}; break;
    case 3:
      o.groups = {{static_cast<int>(pick(1, 60)), pick(2, 30)},
                  {0, blocks},
                  {static_cast<int>(pick(1, 20)), pick(2, blocks)}};
      break;
  }
  return o;
}

Request random_request(RequestId id, std::mt19937_64& random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  // A few texts, so that prefixes meet.
  std::vector<Token> prompt =
      text(pick(1, pick(0, 3) ? 60 : 200), static_cast<uint64_t>(pick(1, 4)));
  if (pick(0, 3) == 0) prompt.back() = static_cast<Token>(pick(0, oracle::kVocab - 1));
  Request r = request(id, std::move(prompt), static_cast<int32_t>(pick(0, 40)));
  r.priority = static_cast<int32_t>(pick(0, 2));
  if (pick(0, 3) == 0) r.stop.min_tokens = static_cast<int32_t>(pick(0, 20));
  if (pick(0, 3) == 0) r.stop.ignore_eos = true;
  if (pick(0, 4) == 0) r.sampling.prompt_logprobs = 0;
  if (pick(0, 3) == 0) r.cache_salt = "other";
  return r;
}

TEST_P(Mix, EveryRequestGetsItsAnswerOrIsRefused) {
  for (int round = 0; round < 25; ++round) {
    const int seed = GetParam() * 1000 + round;
    SCOPED_TRACE(seed);
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    Harness h(random_options(random));
    std::set<RequestId> cancelled;
    RequestId id = 0;
    for (int turn = 0; turn < 120; ++turn) {
      if (random() % 3 == 0) (void)h.add(random_request(++id, random));
      if (id > 0 && random() % 12 == 0) {
        const RequestId victim = 1 + random() % id;
        if (h.requests.contains(victim) && h.answers[victim].finish == Finish::none)
          cancelled.insert(victim);
        h.cancel(victim);
      }
      if (random() % 40 == 0) h.scheduler.reset_prefix_cache();
      h.step();
      ASSERT_FALSE(HasFatalFailure());
    }
    ASSERT_NO_FATAL_FAILURE(h.run());
    for (const auto& [request_id, r] : h.requests) {
      if (cancelled.contains(request_id)) {
        EXPECT_EQ(h.answers[request_id].finish, Finish::aborted);
      } else {
        h.expect_answer(request_id);
      }
    }
    h.expect_idle();
    ASSERT_FALSE(HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Mix, ::testing::Range(0, 16));

}  // namespace
}  // namespace millrace
