#include "engine/sched/scheduler.h"

#include <algorithm>
#include <string>

#include "engine/base/check.h"

namespace millrace {
namespace {

constexpr size_t kMaxStepsInFlight = 2;
// Rows of one sequence whose scores are wanted, per step: each needs a row of logits.
constexpr int64_t kMaxScoredRows = 64;

}  // namespace

Scheduler::Scheduler(SchedulerOptions options)
    : options_(std::move(options)), cache_(options_.cache), pace_(options_.itl_target_seconds) {
  ensure(options_.max_num_seqs > 0 && options_.max_num_batched_tokens > 0,
         "a step has at least one sequence and one row");
  for (int32_t slot = options_.max_num_seqs; slot-- > 0;) free_slots_.push_back(slot);
}

Scheduler::~Scheduler() = default;

bool Scheduler::idle() const {
  return live_.empty() && draining_.empty() && running_.empty() && waiting_.empty() &&
         deadlines_.empty() && computing_.empty() && steps_.empty() && waiting_tokens_ == 0 &&
         free_slots_.size() == static_cast<size_t>(options_.max_num_seqs);
}

Status Scheduler::check(const Request& request) const {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0) return absl::InvalidArgumentError("the prompt has no token");
  for (const Token token : request.prompt)
    if (token < 0 || token >= options_.vocab)
      return absl::InvalidArgumentError("the prompt holds the token id " + std::to_string(token) +
                                        "; legal are 0 to " + std::to_string(options_.vocab - 1));
  const StopRules& stop = request.stop;
  if (stop.max_tokens < 0 || stop.min_tokens < 0)
    return absl::InvalidArgumentError("max_tokens and min_tokens must be at least 0");
  const int64_t most = options_.max_model_len - (stop.max_tokens > 0 ? 1 : 0);
  if (prompt > most)
    return absl::InvalidArgumentError("the prompt has " + std::to_string(prompt) +
                                      " tokens, at most " + std::to_string(most) + " fit");
  const int64_t rows =
      prompt + std::min<int64_t>(stop.max_tokens, options_.max_model_len - prompt) - 1;
  if (rows > cache_.capacity_tokens())
    return absl::InvalidArgumentError("prompt and max_tokens need " + std::to_string(rows) +
                                      " tokens of KV cache, but the whole cache holds " +
                                      std::to_string(cache_.capacity_tokens()));
  return absl::OkStatus();
}

void Scheduler::add(Request request, TimePoint submitted) {
  auto s = std::make_unique<Sequence>();
  s->submitted = submitted;
  s->arrival = next_arrival_++;
  s->tokens = request.prompt;
  s->max_tokens = std::min<int64_t>(
      request.stop.max_tokens, options_.max_model_len - static_cast<int64_t>(s->tokens.size()));
  s->chain = PrefixChain(options_.cache.block_size, request.cache_salt, options_.hash_seed);
  s->request = std::move(request);
  const RequestId id = s->request.id;
  if (s->request.deadline) deadlines_.emplace(*s->request.deadline, id);
  waiting_.insert(s.get());
  waiting_tokens_ += s->num_tokens();
  ensure(live_.emplace(id, std::move(s)).second, "request ids are unique");
}

void Scheduler::cancel(RequestId id, Events& events) {
  const auto it = live_.find(id);
  if (it == live_.end()) return;
  finish(*it->second, make_event(*it->second), Finish::aborted, events);
}

void Scheduler::cancel_all(Events& events) {
  while (!live_.empty()) cancel(live_.begin()->first, events);
}

void Scheduler::expire(TimePoint now, Events& events) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    Sequence& s = *live_.at(deadlines_.begin()->second);
    finish(s, make_event(s), Finish::deadline, events);
  }
}

StepPlan Scheduler::plan(TimePoint now, Events& events) {
  expire(now, events);
  if (steps_.size() >= kMaxStepsInFlight) return {};
  Draft draft;
  draft.budget = options_.max_num_batched_tokens;
  draft.plan.sequences.reserve(running_.size() + 1);
  draft.entries.reserve(running_.size() + 1);
  schedule_running(draft);
  admit_waiting(now, draft, events);
  if (!draft.entries.empty()) steps_.push_back(std::move(draft.entries));
  return std::move(draft.plan);
}

void Scheduler::schedule_running(Draft& draft) {
  // Preemption removes only worse ranks than the one being served, so indexes stay good.
  const auto serve = [&](bool single_row) {
    for (size_t i = 0; i < running_.size(); ++i) {
      Sequence& s = *running_[i];
      if (s.evicting || s.remaining() <= 0 || (s.remaining() == 1) != single_row) continue;
      // The best of all is never crowded out by single rows: one row stays for it.
      const int64_t kept = single_row && running_[0]->remaining() > 1 && !running_[0]->evicting;
      if (draft.budget > kept) schedule(s, draft.budget - kept, draft);
    }
  };
  serve(true);
  int64_t decode = 0, prompt = 0;
  count_rows(draft.entries, decode, prompt);
  draft.budget = pace_.prompt_rows(decode, draft.budget);
  serve(false);
}

void Scheduler::count_rows(const StepEntries& entries, int64_t& decode, int64_t& prompt) {
  for (const StepEntry& e : entries) (e.count == 1 && e.sample ? decode : prompt) += e.count;
}

// False if there is no block for its next row.
bool Scheduler::schedule(Sequence& s, int64_t budget, Draft& draft) {
  int64_t end = s.scheduled + std::min(s.remaining(), budget);
  if (s.scheduled < s.score_begin) {
    end = std::min(end, s.score_begin);
  } else if (s.scheduled < s.score_end()) {
    end = std::min(end, s.scheduled + kMaxScoredRows);
  }
  if (end > cache_.growable_end(s.table, PagedCache::Groups::all) && !make_room(s, draft))
    return false;
  end = std::min(end, cache_.growable_end(s.table, PagedCache::Groups::all));
  cache_.grow(s.table, end, PagedCache::Groups::all);
  add_step(s, end, draft);
  return true;
}

void Scheduler::add_step(Sequence& s, int64_t end, Draft& draft) {
  StepSequence step;
  step.slot = s.slot;
  step.start = static_cast<int32_t>(s.scheduled);
  step.count = static_cast<int32_t>(end - s.scheduled);
  step.from_device = end > s.num_tokens();
  step.sample = end == s.known();
  const auto begin = s.tokens.begin();
  step.tokens.assign(begin + s.scheduled, begin + std::min(end, s.num_tokens()));
  step.blocks.reserve(static_cast<size_t>(cache_.num_groups()));
  for (int g = 0; g < cache_.num_groups(); ++g) step.blocks.push_back(s.table.blocks(g));
  if (s.scheduled >= s.score_begin && s.scheduled < s.score_end())
    step.score_targets.assign(begin + s.scheduled + 1, begin + std::min(end, s.score_end()) + 1);
  if (!s.begun) {
    s.begun = true;
    step.begin = StepSequence::Begin{s.request.sampling, s.request.stop, options_.eos_tokens,
                                     s.tokens, static_cast<int32_t>(s.prompt_size())};
  }
  draft.entries.push_back(
      {&s, step.start, step.count, static_cast<int32_t>(step.score_targets.size()), step.sample});
  draft.budget -= step.count;
  s.scheduled = end;
  ++s.in_flight;
  s.pending += step.sample;
  draft.plan.sequences.push_back(std::move(step));
}

// Blocks for at least one more row of `s`, taken from worse ranks if need be. False: not now.
bool Scheduler::make_room(Sequence& s, Draft& draft) {
  const auto has_room = [&](PagedCache::Groups which) {
    return cache_.growable_end(s.table, which) > s.scheduled;
  };
  while (!has_room(PagedCache::Groups::all)) {
    draft.stalled = true;
    // Its own window moves on when its step in flight is taken.
    if (s.in_flight > 0 && has_room(PagedCache::Groups::full)) return false;
    Sequence* victim = running_.back();
    if (victim == &s) return false;
    if (victim->in_flight > 0) {
      victim->evicting = true;
      return false;
    }
    preempt(*victim);
  }
  return true;
}

void Scheduler::preempt(Sequence& s) {
  ++counters_.preemptions;
  release(s);
  running_.erase(std::find(running_.begin(), running_.end(), &s));
  s.score_begin = s.scored;
  s.begun = s.evicting = false;
  s.scheduled = s.computed = 0;
  waiting_.insert(&s);
  waiting_tokens_ += s.num_tokens();
}

}  // namespace millrace
