// The CPU quota that Linux control groups (v2 and v1) put on this process. Pure reading of files;
// any thread may call it.
#pragma once

#include <string>

namespace millrace {

// CPUs that the quota allows, rounded up; 0 where there is no limit. Every ancestor of the
// process's group counts. `root` is "" for the real file system; tests give a directory that holds
// proc/self/cgroup and sys/fs/cgroup.
int cgroup_cpu_limit(const std::string& root);

}  // namespace millrace
