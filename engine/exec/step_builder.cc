#include "engine/exec/step_builder.h"

namespace millrace {

StepBuilder::StepBuilder(int num_groups, int block_size)
    : block_size_(block_size),
      slots_(static_cast<size_t>(num_groups)),
      sequences_(static_cast<size_t>(num_groups)),
      groups_(static_cast<size_t>(num_groups)) {}

void StepBuilder::add_sequence(const StepPlan& plan, int32_t index,
                               const std::vector<SamplingState>& states) {
  const StepSequence& s = plan.sequences[static_cast<size_t>(index)];
  const auto begin = static_cast<int32_t>(tokens_.size());
  tokens_.insert(tokens_.end(), s.tokens.begin(), s.tokens.end());
  if (s.from_device) tokens_.push_back(states[static_cast<size_t>(s.slot)].last_token());
  MR_CHECK_OP(static_cast<int32_t>(tokens_.size()) - begin, ==, s.count);
  for (int32_t i = 0; i < s.count; ++i) positions_.push_back(s.start + i);

  for (size_t g = 0; g < groups_.size(); ++g) {
    const std::vector<int32_t>& blocks = s.blocks[g];
    for (int32_t i = 0; i < s.count; ++i) {
      const int32_t position = s.start + i;
      const int32_t block = blocks[static_cast<size_t>(position / block_size_)];
      slots_[g].push_back(block * block_size_ + position % block_size_);
    }
    sequences_[g].push_back({begin, s.count, s.start + s.count, blocks.data()});
  }
  for (size_t i = 0; i < s.score_targets.size(); ++i) {
    logit_rows_.push_back(begin + static_cast<int32_t>(i));
    logit_owners_.push_back({index, static_cast<int32_t>(i)});
  }
  if (s.sample) {
    logit_rows_.push_back(begin + s.count - 1);
    logit_owners_.push_back({index, -1});
  }
}

Step StepBuilder::build(const StepPlan& plan, const std::vector<SamplingState>& states) {
  tokens_.clear();
  positions_.clear();
  logit_rows_.clear();
  logit_owners_.clear();
  for (size_t g = 0; g < groups_.size(); ++g) {
    slots_[g].clear();
    sequences_[g].clear();
  }
  for (size_t i = 0; i < plan.sequences.size(); ++i)
    add_sequence(plan, static_cast<int32_t>(i), states);
  for (size_t g = 0; g < groups_.size(); ++g) groups_[g] = {slots_[g], sequences_[g]};
  return {tokens_, positions_, groups_, logit_rows_};
}

}  // namespace millrace
