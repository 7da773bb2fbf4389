// The one clock: monotonic. Code that decides by time gets a time point as a parameter, so tests
// can choose it.
#pragma once

#include <chrono>

namespace millrace {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

inline double seconds_between(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace millrace
