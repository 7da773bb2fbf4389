// Bucket bounds of the histograms. Those of the vLLM aliases are vLLM's, so that dashboards made
// for it keep working; our own latency bounds are geometric and resolve a small model as well as a
// large loaded one.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace::app {

inline std::vector<double> first_token_buckets() {
  return {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
          1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
}

inline std::vector<double> per_token_buckets() {
  return {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
}

inline std::vector<double> request_time_buckets() {
  return {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
          30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
}

// 0.2 ms to about 600 s by a factor of 1.6.
inline std::vector<double> own_latency_buckets() {
  std::vector<double> bounds;
  for (double bound = 0.0002; bound < 620.0; bound *= 1.6) bounds.push_back(bound);
  return bounds;
}

// 1 2 5 10 20 50 ... and the limit itself.
inline std::vector<double> token_count_buckets(int64_t limit) {
  std::vector<double> bounds;
  for (int64_t power = 1; power < limit; power *= 10) {
    for (int64_t step : {1, 2, 5}) {
      if (power * step < limit) bounds.push_back(static_cast<double>(power * step));
    }
  }
  bounds.push_back(static_cast<double>(limit > 0 ? limit : 1));
  return bounds;
}

}  // namespace millrace::app
