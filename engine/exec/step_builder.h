// StepBuilder: the host arrays of one step, filled from a StepPlan and viewed by the model as a
// Step. Buffers keep their capacity from step to step. Used by the device thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/exec/executor.h"
#include "engine/sample/sampling_state.h"
#include "models/model.h"

namespace millrace {

class StepBuilder {
 public:
  StepBuilder(int num_groups, int block_size);

  // `states[slot]` holds the last sampled token of sequences whose token is still on the device.
  // The plan outlives the Step.
  Step build(const StepPlan& plan, const std::vector<SamplingState>& states);

  // Rows of the logits, in plan order: first a sequence's scored rows, then its sampled one.
  struct LogitRow {
    int32_t sequence;     // index in the plan
    int32_t score_index;  // index in score_targets, or -1 for the sampled row
  };
  const std::vector<LogitRow>& logit_rows() const { return logit_owners_; }

 private:
  void add_sequence(const StepPlan& plan, int32_t index, const std::vector<SamplingState>& states);

  const int block_size_;
  std::vector<int32_t> tokens_, positions_, logit_rows_;
  std::vector<LogitRow> logit_owners_;
  std::vector<std::vector<int32_t>> slots_;
  std::vector<std::vector<AttentionSequence>> sequences_;
  std::vector<Step::Group> groups_;
};

}  // namespace millrace
