// StepPace: how many rows of prompt a step may carry while answers are being streamed, so that a
// long prompt does not hold their tokens up. Learns what steps cost from the results of earlier
// ones. A value; part of the scheduler's state.
//
// A step of d decoding rows and p prompt rows is taken to last decode(d) + p * row. Both are
// running means: decode(d) of steps without a prompt, for each power of two of d; row of steps with
// one.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace millrace {

class StepPace {
 public:
  // Seconds that a step with decoding rows may last. 0: kStretch times what it would without
  // prompt.
  explicit StepPace(double target_seconds = 0.0) : target_(target_seconds) {}

  void observe(int64_t decode_rows, int64_t prompt_rows, double seconds);

  // At least kLeastRows; `most` if nothing decodes, or while the cost of a row is unknown and most
  // is less than kFirstRows.
  int64_t prompt_rows(int64_t decode_rows, int64_t most) const;

  static constexpr double kStretch = 2.5;
  static constexpr double kUnnoticed = 0.05;  // seconds between tokens; faster than one reads
  static constexpr int64_t kLeastRows = 16;  // fewer would waste the weights that are read for them
  static constexpr int64_t kFirstRows = 64;

 private:
  static size_t bucket(int64_t rows) {
    return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(rows)));
  }
  double decode_seconds(int64_t rows) const;

  double target_;
  std::array<double, 24> decode_ = {};  // 0: never seen
  double row_ = 0.0;                    // 0: never seen
};

}  // namespace millrace
