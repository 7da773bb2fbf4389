// The part of the scheduler that lets waiting sequences in.
#include <algorithm>

#include "engine/sched/scheduler.h"

namespace millrace {

void Scheduler::admit_waiting(TimePoint now, Draft& draft, Events& events) {
  // Sequences that wait for another's prefix are passed over; how many are looked at is bounded.
  int64_t look_ahead = 4 * int64_t{options_.max_num_seqs};
  for (auto it = waiting_.begin(); it != waiting_.end() && look_ahead > 0; --look_ahead) {
    if (draft.budget <= 0 || draft.stalled) return;
    Sequence& s = **it;
    if (s.last_row() <= 0) {  // a single token and nothing to generate: nothing to compute
      ++it;
      note_first_start(s, 0, now);
      finish(s, make_event(s), Finish::length, events);
      continue;
    }
    Admission admission = try_admit(s, now);
    // What is displaced has a worse rank, so it waits behind `it`.
    if (admission == Admission::blocked && displace_for(s)) admission = try_admit(s, now);
    if (admission == Admission::blocked) return;
    ++it;
    if (admission == Admission::deferred) continue;
    waiting_.erase(&s);
    schedule(s, draft.budget, draft);
  }
}

Scheduler::Admission Scheduler::try_admit(Sequence& s, TimePoint now) {
  if (still_awaits(s)) return Admission::deferred;
  s.chain.extend(s.tokens);
  const int64_t end = std::min(s.num_tokens(), s.last_row());
  // One row at least is computed even if all is cached, and so are the rows to be scored.
  const int64_t limit = s.wants_scores() ? std::min(s.scored, end - 1) : end - 1;
  const PagedCache::Match match = cache_.match(s.chain, s.tokens, s.request.cache_salt, limit);
  const int64_t next = match.num_blocks();
  if ((next + 1) * options_.cache.block_size <= limit && is_being_computed(s, next)) {
    s.awaited = s.chain[next];
    return Admission::deferred;
  }
  if (free_slots_.empty()) return Admission::blocked;
  // All of its known tokens, and a block of growth for each that runs already: otherwise they
  // would soon take its blocks back.
  const auto spare = static_cast<int64_t>(running_.size());
  if (!cache_.fits(match, end, spare)) return Admission::blocked;
  start(s, match, now);
  return Admission::admitted;
}

// Takes the place of the worst running sequence if that is of a worse class. True: it is free now.
bool Scheduler::displace_for(const Sequence& s) {
  if (running_.empty() || running_.back()->request.priority <= s.request.priority) return false;
  Sequence& victim = *running_.back();
  if (victim.in_flight > 0) {
    victim.evicting = true;
    return false;
  }
  preempt(victim);
  return true;
}

void Scheduler::start(Sequence& s, const PagedCache::Match& match, TimePoint now) {
  const int64_t hit = match.num_blocks() * options_.cache.block_size;
  note_first_start(s, hit, now);
  s.table = cache_.open(match);
  s.scheduled = s.computed = hit;
  cache_.grow(s.table, std::min(s.num_tokens(), s.last_row()), PagedCache::Groups::full);
  s.slot = free_slots_.back();
  free_slots_.pop_back();
  running_.insert(std::upper_bound(running_.begin(), running_.end(), &s, RankLess()), &s);
  waiting_tokens_ -= s.num_tokens();
  announce(s);
}

void Scheduler::note_first_start(Sequence& s, int64_t cached_tokens, TimePoint now) {
  if (s.started) return;
  s.queue_seconds = seconds_between(s.submitted, now);
  s.cached_tokens = static_cast<int32_t>(cached_tokens);
  counters_.prompt_tokens += s.prompt_size();
  if (options_.cache.prefix_caching && !s.wants_scores()) {
    counters_.prefix_queries += s.prompt_size();
    counters_.prefix_hits += cached_tokens;
  }
  leave_queue(s);
  s.started = true;
}

// ---- Equal prompts at once: one computes, the others wait for its blocks -----------------------

void Scheduler::announce(Sequence& s) {
  if (!options_.cache.prefix_caching) return;
  const int64_t size = options_.cache.block_size;
  s.announced_begin = s.scheduled / size;
  s.announced_end = std::min(s.num_tokens(), s.last_row()) / size;
  for (int64_t k = s.announced_begin; k < s.announced_end; ++k)
    computing_.try_emplace(s.chain[k], &s);
}

void Scheduler::withdraw(Sequence& s, int64_t end) {
  for (; s.announced_begin < std::min(end, s.announced_end); ++s.announced_begin) {
    const auto it = computing_.find(s.chain[s.announced_begin]);
    if (it != computing_.end() && it->second == &s) computing_.erase(it);
  }
}

// A hash is a hint here, too: what it stands for is compared.
bool Scheduler::is_being_computed(const Sequence& s, int64_t block) const {
  const auto it = computing_.find(s.chain[block]);
  if (it == computing_.end()) return false;
  const Sequence& owner = *it->second;
  const auto size = (block + 1) * options_.cache.block_size;
  return owner.request.priority <= s.request.priority && owner.num_tokens() >= size &&
         owner.request.cache_salt == s.request.cache_salt &&
         std::equal(s.tokens.begin(), s.tokens.begin() + size, owner.tokens.begin());
}

bool Scheduler::still_awaits(Sequence& s) const {
  if (!s.awaited) return false;
  const auto it = computing_.find(*s.awaited);
  if (it != computing_.end() && it->second->request.priority <= s.request.priority) return true;
  s.awaited.reset();
  return false;
}

}  // namespace millrace
