// The part of the scheduler that takes results and ends sequences.
#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/sched/scheduler.h"

namespace millrace {
namespace {

bool contains(const std::vector<Token>& tokens, Token token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

}  // namespace

void Scheduler::apply(StepResult result, Events& events) {
  ensure(!steps_.empty(), "a result belongs to a step in flight");
  const StepEntries entries = std::move(steps_.front());
  steps_.pop_front();
  int64_t decode = 0, prompt = 0;
  count_rows(entries, decode, prompt);
  pace_.observe(decode, prompt, result.seconds);
  ensure_equal(static_cast<int64_t>(result.outputs.size()), static_cast<int64_t>(entries.size()),
               "one output per sequence of the step");
  for (size_t i = 0; i < entries.size(); ++i) {
    const StepEntry& entry = entries[i];
    Sequence& s = *entry.sequence;
    ensure_equal(result.outputs[i].slot, s.slot, "outputs are in the plan's order");
    --s.in_flight;
    s.pending -= entry.sample;
    counters_.computed_tokens += entry.count;
    if (!s.finished) apply_output(entry, result.outputs[i], events);
  }
  // What ended during this call or before, and nothing in flight refers to any more.
  std::erase_if(draining_, [this](const std::unique_ptr<Sequence>& s) {
    if (s->in_flight > 0) return false;
    release(*s);
    return true;
  });
}

void Scheduler::apply_output(const StepEntry& entry, StepOutput& output, Events& events) {
  Sequence& s = *entry.sequence;
  if (!output.error.empty()) {
    TokenEvent event = make_event(s);
    event.error = std::move(output.error);
    finish(s, std::move(event), Finish::error, events);
    return;
  }
  s.computed = int64_t{entry.start} + entry.count;
  s.chain.extend(s.tokens);
  cache_.commit(s.table, s.chain, s.tokens, s.request.cache_salt, s.computed);
  withdraw(s, s.computed / options_.cache.block_size);
  ensure_equal(static_cast<int64_t>(output.prompt_scores.size()), entry.num_scores,
               "one score per target");
  s.scored += entry.num_scores;

  Finish why = Finish::none;
  if (entry.sample) {
    ensure(output.token >= 0 && output.token < options_.vocab, "a sampled id is in the vocabulary");
    s.tokens.push_back(output.token);
    ++counters_.generated_tokens;
    why = finish_after(s, output.token);
  } else if (s.max_tokens == 0 && s.computed == s.last_row()) {
    why = Finish::length;
  }
  if (entry.sample || entry.num_scores > 0 || why != Finish::none) {
    TokenEvent event = make_event(s);
    event.token = entry.sample ? output.token : -1;
    event.logprob = output.logprob;
    event.top = std::move(output.top);
    event.prompt_scores = std::move(output.prompt_scores);
    if (why != Finish::none) return finish(s, std::move(event), why, events);
    events.push_back(std::move(event));
  }
  if (s.evicting && s.in_flight == 0) preempt(s);
}

Finish Scheduler::finish_after(const Sequence& s, Token token) const {
  const StopRules& stop = s.request.stop;
  const bool ends = (!stop.ignore_eos && contains(options_.eos_tokens, token)) ||
                    contains(stop.stop_tokens, token);
  if (ends && s.num_generated() > stop.min_tokens) return Finish::stop;
  return s.num_generated() >= s.max_tokens ? Finish::length : Finish::none;
}

TokenEvent Scheduler::make_event(Sequence& s) const {
  TokenEvent event;
  event.id = s.request.id;
  if (!s.reported) {
    s.reported = true;
    event.cached_tokens = s.cached_tokens;
    event.queue_seconds = static_cast<float>(s.queue_seconds);
  }
  return event;
}

void Scheduler::finish(Sequence& s, TokenEvent event, Finish why, Events& events) {
  event.finish = why;
  events.push_back(std::move(event));
  ++counters_.finished[static_cast<size_t>(why)];
  if (!s.started) leave_queue(s);
  if (s.slot >= 0) {
    running_.erase(std::find(running_.begin(), running_.end(), &s));
  } else {
    waiting_.erase(&s);
    waiting_tokens_ -= s.num_tokens();
  }
  withdraw(s, s.announced_end);
  forget(s);
}

// The id is free from here on; what the sequence holds stays until no step refers to it.
void Scheduler::forget(Sequence& s) {
  const auto it = live_.find(s.request.id);
  std::unique_ptr<Sequence> owner = std::move(it->second);
  live_.erase(it);
  if (s.request.deadline) deadlines_.erase({*s.request.deadline, s.request.id});
  s.finished = true;
  if (s.in_flight > 0) {
    draining_.push_back(std::move(owner));
  } else {
    release(s);
  }
}

void Scheduler::leave_queue(const Sequence& s) {
  ++counters_.started_requests;
  counters_.started_tokens += s.prompt_size();
}

void Scheduler::release(Sequence& s) {
  withdraw(s, s.announced_end);
  s.table.clear();
  if (s.slot >= 0) free_slots_.push_back(std::exchange(s.slot, -1));
}

}  // namespace millrace
