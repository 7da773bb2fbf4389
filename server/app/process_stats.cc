#include "server/app/process_stats.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

namespace millrace::app {

namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Close enough to the start of the process: static initialisation of the binary.
const double kStartTime = unix_now();

int64_t count_open_fds() {
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  int64_t count = -1;  // the folder's own descriptor
  while (const dirent* entry = ::readdir(folder)) {
    if (entry->d_name[0] != '.') ++count;
  }
  ::closedir(folder);
  return count;
}

}  // namespace

ProcessStats read_process_stats() {
  ProcessStats stats;
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    stats.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  if (statm >> size >> resident) stats.resident_bytes = resident * ::sysconf(_SC_PAGESIZE);
  stats.open_fds = count_open_fds();
  stats.start_time = kStartTime;
  return stats;
}

}  // namespace millrace::app
