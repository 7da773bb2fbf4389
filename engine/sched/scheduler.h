// Scheduler: sequences in, StepPlans out, results in, TokenEvents out. State only: no device, no
// clock, no waiting. At most two plans are in flight; results come in order. Owned by the engine;
// engine thread only, except where noted.
//
// Order of service is (priority, arrival). In a plan, sequences with one row left to compute come
// first, then longer ones share the token budget, which is small while others decode (StepPace),
// then waiting ones are admitted. Progress: the best running sequence can always take blocks from
// the worst, and a request that an empty cache cannot hold is refused, so the best one always
// finishes. What is preempted is computed again later.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/exec/executor.h"
#include "engine/sched/sequence.h"
#include "engine/sched/step_pace.h"

namespace millrace {

struct SchedulerOptions {
  int64_t max_model_len = 0;
  int max_num_seqs = 64;
  int max_num_batched_tokens = 512;
  double itl_target_seconds = 0.0;  // StepPace's target
  int64_t vocab = 0;
  std::vector<Token> eos_tokens;
  PagedCacheOptions cache;
  uint64_t hash_seed = 0;  // of prefix hashes; keep it secret, it never changes an answer
};

// Rise only.
struct SchedulerCounters {
  int64_t started_requests = 0;  // that left the queue: first admitted, or ended in it
  int64_t started_tokens = 0;    // their prompt tokens
  int64_t prompt_tokens = 0;
  int64_t computed_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t prefix_queries = 0;
  int64_t prefix_hits = 0;
  int64_t preemptions = 0;
  int64_t finished[6] = {};  // by Finish
};

class Scheduler {
 public:
  using Events = std::vector<TokenEvent>;

  explicit Scheduler(SchedulerOptions options);
  ~Scheduler();

  // Why the request can never run, if so. Any thread.
  Status check(const Request& request) const;

  // `request` has passed check(); its id is not in use.
  void add(Request request, TimePoint submitted);
  void cancel(RequestId id, Events& events);
  void cancel_all(Events& events);
  // Ends what is past its deadline, then plans a step; empty if nothing can be computed now or two
  // plans are in flight.
  StepPlan plan(TimePoint now, Events& events);
  // The result of the oldest plan in flight.
  void apply(StepResult result, Events& events);
  void reset_prefix_cache() { cache_.reset(); }

  int64_t num_live() const { return static_cast<int64_t>(live_.size()); }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t waiting_tokens() const { return waiting_tokens_; }
  int num_in_flight() const { return static_cast<int>(steps_.size()); }
  const PagedCache& cache() const { return cache_; }
  const SchedulerCounters& counters() const { return counters_; }
  // Nothing is remembered of requests that have ended.
  bool idle() const;

 private:
  struct StepEntry {
    Sequence* sequence;
    int32_t start, count, num_scores;
    bool sample;
  };
  using StepEntries = std::vector<StepEntry>;
  static void count_rows(const StepEntries& entries, int64_t& decode, int64_t& prompt);
  struct Draft {  // a plan in the making
    StepPlan plan;
    StepEntries entries;
    int64_t budget;
    bool stalled = false;  // somebody waits for blocks: admit nobody
  };

  void expire(TimePoint now, Events& events);
  void schedule_running(Draft& draft);
  bool schedule(Sequence& s, int64_t budget, Draft& draft);
  void add_step(Sequence& s, int64_t end, Draft& draft);
  bool make_room(Sequence& s, Draft& draft);
  void preempt(Sequence& s);

  enum class Admission : uint8_t { admitted, deferred, blocked };
  void admit_waiting(TimePoint now, Draft& draft, Events& events);
  Admission try_admit(Sequence& s, TimePoint now);
  bool displace_for(const Sequence& s);
  void start(Sequence& s, const PagedCache::Match& match, TimePoint now);
  void note_first_start(Sequence& s, int64_t cached_tokens, TimePoint now);
  bool is_being_computed(const Sequence& s, int64_t block) const;
  bool still_awaits(Sequence& s) const;
  void announce(Sequence& s);
  void withdraw(Sequence& s, int64_t end);

  void apply_output(const StepEntry& entry, StepOutput& output, Events& events);
  Finish finish_after(const Sequence& s, Token token) const;
  TokenEvent make_event(Sequence& s) const;
  void finish(Sequence& s, TokenEvent event, Finish why, Events& events);
  void forget(Sequence& s);
  void leave_queue(const Sequence& s);
  void release(Sequence& s);

  const SchedulerOptions options_;
  PagedCache cache_;
  StepPace pace_;
  std::unordered_map<RequestId, std::unique_ptr<Sequence>> live_;
  std::vector<std::unique_ptr<Sequence>> draining_;  // ended, but in flight
  std::vector<Sequence*> running_;                   // by rank
  std::set<Sequence*, RankLess> waiting_;
  std::set<std::pair<TimePoint, RequestId>> deadlines_;
  std::unordered_map<Hash128, Sequence*, Hash128Hasher> computing_;  // announced blocks
  std::vector<int32_t> free_slots_;
  std::deque<StepEntries> steps_;  // in flight
  int64_t waiting_tokens_ = 0;
  uint64_t next_arrival_ = 0;
  SchedulerCounters counters_;
};

}  // namespace millrace
