// ProgressBar: one line on a terminal's stderr, redrawn a few times a second; silent when stderr is
// no terminal. One thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/clock.h"

namespace millrace::app {

class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();  // ends the line

  void update(uint64_t done, uint64_t total);

 private:
  const std::string label_;
  const bool enabled_;
  const TimePoint start_;
  TimePoint last_drawn_;
  bool drawn_ = false;
};

}  // namespace millrace::app
