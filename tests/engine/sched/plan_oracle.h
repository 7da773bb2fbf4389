// PlanOracle: a stand-in for the executor that computes no model but remembers, for every slot of
// every KV block, which exact prefix was written there. Each row checks that all it would attend to
// is there, in every group; the next token is a hash of the whole context. So a plan that reads a
// wrong, stale or foreign block, skips a position or miscounts fails at once, and the tokens of a
// request cannot depend on anything but its own prompt unless something is broken.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/exec/executor.h"

namespace millrace::oracle {

constexpr int64_t kVocab = 64;

inline uint64_t mix(uint64_t h, uint64_t value) {
  h ^= value + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
  h *= 0xbf58476d1ce4e5b9ull;
  return h ^ (h >> 29);
}
// Hash of a context that ends with `token` at `position`.
inline uint64_t extend(uint64_t h, Token token, int64_t position) {
  return mix(mix(h, static_cast<uint64_t>(token) + 1), static_cast<uint64_t>(position) + 1);
}

inline bool contains(const std::vector<Token>& tokens, Token t) {
  return std::find(tokens.begin(), tokens.end(), t) != tokens.end();
}

inline Token next_token(uint64_t context, const StopRules& stop, const std::vector<Token>& eos,
                        int64_t generated) {
  auto t = static_cast<Token>(context % kVocab);
  const auto ends = [&] {
    return (!stop.ignore_eos && contains(eos, t)) || contains(stop.stop_tokens, t);
  };
  while (generated < stop.min_tokens && ends()) t = static_cast<Token>((t + 1) % kVocab);
  return t;
}

struct Answer {
  std::vector<Token> tokens;
  std::vector<PromptScore> scores;
  Finish finish = Finish::none;
};

inline float score_of(uint64_t context, Token target) {
  return -static_cast<float>(mix(context, static_cast<uint64_t>(target)) % 1000) / 100.0f;
}

// What a request must yield, computed without any batching, cache or chunk.
inline Answer expected_answer(const Request& r, const std::vector<Token>& eos) {
  Answer a;
  uint64_t h = 0;
  for (size_t p = 0; p < r.prompt.size(); ++p) {
    h = extend(h, r.prompt[p], static_cast<int64_t>(p));
    if (r.sampling.prompt_logprobs >= 0 && p + 1 < r.prompt.size())
      a.scores.push_back({r.prompt[p + 1], score_of(h, r.prompt[p + 1]), {}});
  }
  a.finish = Finish::length;
  for (int32_t i = 0; i < r.stop.max_tokens; ++i) {
    const Token t = next_token(h, r.stop, eos, i);
    a.tokens.push_back(t);
    const bool ends = (!r.stop.ignore_eos && contains(eos, t)) || contains(r.stop.stop_tokens, t);
    if (ends && i >= r.stop.min_tokens) {
      a.finish = Finish::stop;
      break;
    }
    h = extend(h, t, static_cast<int64_t>(r.prompt.size()) + i);
  }
  return a;
}

class PlanOracle {
 public:
  explicit PlanOracle(ExecutorInfo info) : info_(std::move(info)), slots_(info_.max_num_seqs) {
    for (const KvGroupInfo& g : info_.groups)
      cells_.emplace_back(static_cast<size_t>(g.num_blocks * info_.block_size), 0);
  }

  const ExecutorInfo& info() const { return info_; }
  int in_flight() const { return static_cast<int>(plans_.size()); }
  int64_t rows_computed() const { return rows_computed_; }
  // The n-th sampled row from now on (0: the next) fails.
  void fail_sample(int64_t n) { fail_in_ = n; }

  void submit(StepPlan plan) {
    ASSERT_LT(plans_.size(), 2u);
    check_shape(plan);
    check_writers(plan);
    plans_.push_back(std::move(plan));
  }

  StepResult take() {
    StepPlan plan = std::move(plans_.front());
    plans_.pop_front();
    StepResult result;
    for (const StepSequence& s : plan.sequences) result.outputs.push_back(compute(s));
    result.seconds = 1e-3;
    return result;
  }

 private:
  struct Slot {
    bool used = false;
    StepSequence::Begin begin;
    std::vector<Token> tokens;
    std::vector<uint64_t> contexts;  // of each position of tokens
    int64_t next = 0;                // position
    void add(Token t) {
      const uint64_t h = contexts.empty() ? 0 : contexts.back();
      contexts.push_back(extend(h, t, static_cast<int64_t>(tokens.size())));
      tokens.push_back(t);
    }
  };

  void check_shape(const StepPlan& plan) {
    EXPECT_FALSE(plan.sequences.empty());
    EXPECT_LE(plan.num_tokens(), info_.max_num_batched_tokens);
    std::set<int32_t> slots;
    for (const StepSequence& s : plan.sequences) {
      EXPECT_TRUE(slots.insert(s.slot).second) << "a slot occurs twice";
      ASSERT_GE(s.slot, 0);
      ASSERT_LT(s.slot, info_.max_num_seqs);
      EXPECT_GE(s.count, 1);
      EXPECT_EQ(s.tokens.size(), static_cast<size_t>(s.count - s.from_device));
      EXPECT_EQ(s.blocks.size(), info_.groups.size());
      EXPECT_LE(s.score_targets.size(), 64u);
    }
  }

  // Blocks that a sequence reads or writes in a step: those of its window and its rows.
  template <typename F>
  void for_blocks(const StepSequence& s, size_t group, int64_t from, F f) const {
    for (int64_t b = from / info_.block_size; b <= (s.start + s.count - 1) / info_.block_size;
         ++b) {
      ASSERT_LT(static_cast<size_t>(b), s.blocks[group].size());
      const int32_t id = s.blocks[group][static_cast<size_t>(b)];
      ASSERT_GE(id, 0) << "position " << b * info_.block_size << " has no block";
      ASSERT_LT(id, info_.groups[group].num_blocks);
      f(id);
    }
  }
  int64_t first_read(const StepSequence& s, size_t group) const {
    const int window = info_.groups[group].window;
    return window == 0 ? 0 : std::max(0, s.start - window + 1);
  }

  // A block that is written belongs to one sequence among all steps in flight.
  void check_writers(const StepPlan& plan) {
    std::vector<const StepPlan*> all{&plan};
    for (const StepPlan& p : plans_) all.push_back(&p);
    for (size_t g = 0; g < info_.groups.size(); ++g) {
      std::map<int32_t, std::set<int32_t>> readers;  // block -> slots
      for (const StepPlan* p : all)
        for (const StepSequence& s : p->sequences)
          for_blocks(s, g, first_read(s, g), [&](int32_t id) { readers[id].insert(s.slot); });
      for (const StepPlan* p : all)
        for (const StepSequence& s : p->sequences)
          for_blocks(s, g, s.start, [&](int32_t id) {
            EXPECT_EQ(readers[id].size(), 1u) << "block " << id << " is written and shared";
          });
    }
    for (const StepSequence& s : plan.sequences)
      for (const StepPlan& p : plans_)
        for (const StepSequence& other : p.sequences)
          if (other.slot == s.slot) {
            EXPECT_FALSE(s.begin) << "a slot in flight is reused";
          }
  }

  StepOutput compute(const StepSequence& s) {
    Slot& slot = slots_[static_cast<size_t>(s.slot)];
    if (s.begin) {
      slot = {};
      slot.used = true;
      slot.begin = *s.begin;
      for (const Token t : s.begin->tokens) slot.add(t);
      slot.next = s.start;
      EXPECT_EQ(s.start % info_.block_size, 0);
    }
    StepOutput out;
    out.slot = s.slot;
    EXPECT_TRUE(slot.used);
    EXPECT_EQ(s.start, slot.next) << "positions are contiguous";
    const int64_t end = int64_t{s.start} + s.count;
    if (end > static_cast<int64_t>(slot.tokens.size())) {
      ADD_FAILURE() << "a row without a token";
      return out;
    }
    for (size_t i = 0; i < s.tokens.size(); ++i)
      EXPECT_EQ(s.tokens[i], slot.tokens[static_cast<size_t>(s.start) + i]);
    for (size_t g = 0; g < cells_.size(); ++g) attend(s, slot, g);
    slot.next = end;
    rows_computed_ += s.count;
    for (size_t i = 0; i < s.score_targets.size(); ++i) {
      const size_t p = static_cast<size_t>(s.start) + i;
      EXPECT_EQ(s.score_targets[i], slot.tokens[p + 1]);
      out.prompt_scores.push_back(
          {s.score_targets[i], score_of(slot.contexts[p], s.score_targets[i]), {}});
    }
    EXPECT_EQ(s.sample, end == static_cast<int64_t>(slot.tokens.size()))
        << "the last known token's row samples, and no other";
    if (s.sample) sample(slot, out);
    return out;
  }

  void attend(const StepSequence& s, const Slot& slot, size_t g) {
    const auto cell = [&](int64_t p) -> uint64_t& {
      const int32_t id = s.blocks[g][static_cast<size_t>(p / info_.block_size)];
      return cells_[g][static_cast<size_t>(id * info_.block_size + p % info_.block_size)];
    };
    for (int64_t p = s.start; p < s.start + s.count; ++p)
      cell(p) = slot.contexts[static_cast<size_t>(p)];
    for (int64_t p = first_read(s, g); p < s.start; ++p)
      ASSERT_EQ(cell(p), slot.contexts[static_cast<size_t>(p)])
          << "group " << g << " position " << p << " holds another text";
  }

  void sample(Slot& slot, StepOutput& out) {
    if (fail_in_ >= 0 && fail_in_-- == 0) {
      out.error = "scripted failure";
      slot.add(0);
      return;
    }
    const auto generated =
        static_cast<int64_t>(slot.tokens.size()) - int64_t{slot.begin.prompt_size};
    out.token = next_token(slot.contexts.back(), slot.begin.stop, slot.begin.eos_tokens, generated);
    slot.add(out.token);
  }

  const ExecutorInfo info_;
  std::vector<Slot> slots_;
  std::vector<std::vector<uint64_t>> cells_;  // [groups][blocks * block_size]
  std::deque<StepPlan> plans_;
  int64_t rows_computed_ = 0;
  int64_t fail_in_ = -1;
};

}  // namespace millrace::oracle
