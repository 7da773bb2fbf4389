#include "engine/sched/step_pace.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr double kNewShare = 0.2;  // of the latest step in a running mean

// One step that was held up, by whatever took the processor away, counts as twice the mean at most.
void blend(double& mean, double seen) {
  mean = mean > 0.0 ? mean + kNewShare * (std::min(seen, 2.0 * mean) - mean) : seen;
}

}  // namespace

void StepPace::observe(int64_t decode_rows, int64_t prompt_rows, double seconds) {
  if (decode_rows > 0 && prompt_rows == 0) {
    blend(decode_[std::min(bucket(decode_rows), decode_.size() - 1)], seconds);
    return;
  }
  if (prompt_rows < kLeastRows) return;  // mostly what the step costs anyway
  const double share = seconds - (decode_rows > 0 ? decode_seconds(decode_rows) : 0.0);
  // At least what a row would cost if decoding rows were as dear.
  const double least = seconds / static_cast<double>(2 * (decode_rows + prompt_rows));
  blend(row_, std::max(share / static_cast<double>(prompt_rows), least));
}

double StepPace::decode_seconds(int64_t rows) const {
  const size_t at = std::min(bucket(rows), decode_.size() - 1);
  if (decode_[at] > 0.0) return decode_[at];
  // The nearest smaller batch was not slower, and the nearest larger one was not faster.
  for (size_t i = at; i-- > 0;)
    if (decode_[i] > 0.0) return std::max(decode_[i], row_ * static_cast<double>(rows));
  for (size_t i = at + 1; i < decode_.size(); ++i)
    if (decode_[i] > 0.0) return decode_[i];
  return row_ * static_cast<double>(rows);
}

int64_t StepPace::prompt_rows(int64_t decode_rows, int64_t most) const {
  if (decode_rows == 0) return most;
  if (row_ <= 0.0) return std::min(most, kFirstRows);
  const double alone = decode_seconds(decode_rows);
  const double allowed = target_ > 0.0 ? target_ : std::max(kStretch * alone, kUnnoticed);
  const double rows = std::clamp((allowed - alone) / row_, 0.0, static_cast<double>(most));
  return std::min(most, std::max(kLeastRows, static_cast<int64_t>(rows)));
}

}  // namespace millrace
