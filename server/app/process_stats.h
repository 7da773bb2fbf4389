// What the system says about this process, for the usual process_* metrics. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace millrace::app {

inline constexpr std::string_view kVersion = "0.1.0";

struct ProcessStats {
  double cpu_seconds = 0.0;
  int64_t resident_bytes = 0;
  int64_t open_fds = 0;
  double start_time = 0.0;  // unix seconds
};

ProcessStats read_process_stats();

}  // namespace millrace::app
