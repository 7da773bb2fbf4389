#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <iterator>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "engine/base/check.h"
#include "engine/intake.h"
#include "engine/sched/scheduler.h"
#include "engine/stats_cell.h"

namespace millrace {
namespace {

// An idle loop still turns this often, so that its heartbeat tells life from death.
constexpr std::chrono::milliseconds kIdlePatience{200};
// Work is there, but nothing can be planned and nothing is in flight: only time can change that.
constexpr std::chrono::milliseconds kStuckPatience{5};
constexpr int64_t kNever = -1;

int64_t nanoseconds(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

double seconds_since(int64_t then, TimePoint now) {
  return std::max(0.0, static_cast<double>(nanoseconds(now) - then) * 1e-9);
}

SchedulerOptions scheduler_options(const EngineOptions& o, const ExecutorInfo& info) {
  SchedulerOptions s;
  s.max_model_len = o.max_model_len;
  s.max_num_seqs = std::min(o.max_num_seqs, info.max_num_seqs);
  s.max_num_batched_tokens = std::min(o.max_num_batched_tokens, info.max_num_batched_tokens);
  s.itl_target_seconds = o.itl_target_seconds;
  s.vocab = info.vocab;
  s.eos_tokens = o.eos_tokens;
  s.cache.block_size = info.block_size;
  s.cache.prefix_caching = o.enable_prefix_caching;
  for (const KvGroupInfo& g : info.groups) s.cache.groups.push_back({g.window, g.num_blocks});
  std::random_device random;
  s.hash_seed = (uint64_t{random()} << 32) | random();
  return s;
}

size_t iteration_bucket(int64_t tokens) {
  const auto begin = std::begin(EngineStats::kIterationBuckets);
  const auto end = std::end(EngineStats::kIterationBuckets);
  return static_cast<size_t>(std::lower_bound(begin, end, tokens) - begin);
}

}  // namespace

struct Engine::Impl {
  Impl(const EngineOptions& options, std::unique_ptr<Executor> the_executor, EventSink the_sink)
      : executor(std::move(the_executor)),
        sink(std::move(the_sink)),
        intake({options.max_num_queued_requests, options.max_num_queued_tokens}),
        scheduler(scheduler_options(options, executor->info())) {
    turn();
    publish_stats();
    thread = std::thread([this] { run(); });
  }

  void run();
  void accept(Intake::Batch batch);
  // False if there was nothing to plan.
  bool plan_step();
  void take_step();
  void publish_events();
  void publish_stats();
  void turn() { heartbeat.store(nanoseconds(Clock::now()), std::memory_order_relaxed); }

  const std::unique_ptr<Executor> executor;
  const EventSink sink;
  Intake intake;

  // Engine thread only, except scheduler.check().
  Scheduler scheduler;
  std::vector<TokenEvent> events;
  std::deque<int64_t> step_tokens;  // of the steps in flight
  EngineStats local;
  int64_t started_requests = 0, started_tokens = 0;  // that the intake knows of

  // Written by the engine thread, read by any.
  StatsCell<EngineStats> published;
  std::atomic<int64_t> heartbeat = 0;
  std::atomic<int64_t> progress_since = kNever;  // last result, or since work is there

  std::once_flag stopped;
  std::thread thread;
};

void Engine::Impl::run() {
  bool planned = true;
  while (true) {
    turn();
    const bool idle = scheduler.num_live() == 0 && scheduler.num_in_flight() == 0;
    const bool stuck = !planned && scheduler.num_in_flight() == 0;
    Intake::Batch batch = intake.take(idle    ? kIdlePatience
                                      : stuck ? kStuckPatience
                                              : std::chrono::milliseconds(0));
    const bool closing = batch.closed;
    accept(std::move(batch));
    planned = plan_step();
    // Before the wait for a step: what was cancelled or refused must not wait with it.
    publish_events();
    publish_stats();
    const int in_flight = scheduler.num_in_flight();
    if (in_flight > 1 || (in_flight > 0 && !planned)) take_step();
    publish_events();
    publish_stats();
    if (closing && scheduler.num_live() == 0 && scheduler.num_in_flight() == 0) return;
  }
}

void Engine::Impl::accept(Intake::Batch batch) {
  for (Intake::Arrival& a : batch.arrivals) scheduler.add(std::move(a.request), a.time);
  for (const RequestId id : batch.cancels) scheduler.cancel(id, events);
  if (batch.reset_prefix_cache) scheduler.reset_prefix_cache();
  if (batch.closed) scheduler.cancel_all(events);
  if (scheduler.num_live() == 0) {
    progress_since.store(kNever, std::memory_order_relaxed);
  } else if (progress_since.load(std::memory_order_relaxed) == kNever) {
    progress_since.store(nanoseconds(Clock::now()), std::memory_order_relaxed);
  }
}

bool Engine::Impl::plan_step() {
  StepPlan plan = scheduler.plan(Clock::now(), events);
  if (plan.sequences.empty()) return false;
  step_tokens.push_back(plan.num_tokens());
  executor->submit(std::move(plan));
  return true;
}

void Engine::Impl::take_step() {
  std::optional<StepResult> result = executor->take_result(true);
  ensure(result.has_value(), "a step in flight has a result");
  ++local.steps;
  local.step_seconds_sum += result->seconds;
  ++local.iteration_counts[iteration_bucket(step_tokens.front())];
  step_tokens.pop_front();
  scheduler.apply(*std::move(result), events);
  progress_since.store(scheduler.num_live() > 0 ? nanoseconds(Clock::now()) : kNever,
                       std::memory_order_relaxed);
}

void Engine::Impl::publish_events() {
  const SchedulerCounters& c = scheduler.counters();
  intake.left_queue(c.started_requests - started_requests, c.started_tokens - started_tokens);
  started_requests = c.started_requests;
  started_tokens = c.started_tokens;
  if (events.empty()) return;
  intake.close_ended(events);
  publish_stats();
  sink(std::exchange(events, {}));
}

void Engine::Impl::publish_stats() {
  const SchedulerCounters& c = scheduler.counters();
  const auto finished = [&](Finish why) { return c.finished[static_cast<size_t>(why)]; };
  local.running = scheduler.num_running();
  local.waiting = scheduler.num_waiting();
  local.waiting_tokens = scheduler.waiting_tokens();
  local.kv_blocks_total = scheduler.cache().total();
  local.kv_blocks_used = scheduler.cache().used();
  local.kv_blocks_cached = scheduler.cache().cached();
  local.prompt_tokens = c.prompt_tokens;
  local.computed_tokens = c.computed_tokens;
  local.generated_tokens = c.generated_tokens;
  local.prefix_queries = c.prefix_queries;
  local.prefix_hits = c.prefix_hits;
  local.preemptions = c.preemptions;
  local.finished_stop = finished(Finish::stop);
  local.finished_length = finished(Finish::length);
  local.finished_aborted = finished(Finish::aborted);
  local.finished_deadline = finished(Finish::deadline);
  local.finished_error = finished(Finish::error);
  published.write(local);
}

Engine::Engine(EngineOptions options, std::unique_ptr<Executor> executor, EventSink sink)
    : impl_(std::make_unique<Impl>(options, std::move(executor), std::move(sink))) {}

Engine::~Engine() { stop(); }

Status Engine::submit(Request request) {
  MR_RETURN_IF_ERROR(impl_->scheduler.check(request));
  return impl_->intake.submit(std::move(request), Clock::now());
}

void Engine::cancel(RequestId id) { impl_->intake.cancel(id); }

void Engine::reset_prefix_cache() { impl_->intake.reset_prefix_cache(); }

EngineStats Engine::stats() const {
  EngineStats stats = impl_->published.read();
  stats.waiting += impl_->intake.num_pending();
  const TimePoint now = Clock::now();
  stats.heartbeat_age_seconds =
      seconds_since(impl_->heartbeat.load(std::memory_order_relaxed), now);
  const int64_t since = impl_->progress_since.load(std::memory_order_relaxed);
  stats.no_progress_seconds = since == kNever ? 0.0 : seconds_since(since, now);
  return stats;
}

void Engine::stop() {
  std::call_once(impl_->stopped, [this] {
    impl_->intake.close();
    impl_->thread.join();
  });
}

}  // namespace millrace
