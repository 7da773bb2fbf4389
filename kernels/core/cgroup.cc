#include "kernels/core/cgroup.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace millrace {
namespace {

struct Quota {
  double cpus = 0;  // 0: unlimited
  void limit(double quota, double period) {
    if (quota <= 0 || period <= 0) return;
    const double allowed = quota / period;
    cpus = cpus == 0 ? allowed : std::min(cpus, allowed);
  }
};

// cpu.max: "<quota or max> <period>", microseconds.
void read_v2(const std::string& directory, Quota& quota) {
  std::ifstream file(directory + "/cpu.max");
  double allowed = 0, period = 0;
  if (file >> allowed >> period) quota.limit(allowed, period);
}

// cpu.cfs_quota_us (-1: unlimited) and cpu.cfs_period_us.
void read_v1(const std::string& directory, Quota& quota) {
  std::ifstream quota_file(directory + "/cpu.cfs_quota_us");
  std::ifstream period_file(directory + "/cpu.cfs_period_us");
  double allowed = 0, period = 0;
  if (quota_file >> allowed && period_file >> period) quota.limit(allowed, period);
}

// Calls read(mount + path) for the path and each of its ancestors up to the mount itself. Where the
// path is not visible (no cgroup namespace in a container), the mount is the container's own group.
template <class Read>
void walk_up(const std::string& mount, std::string path, Quota& quota, Read&& read) {
  while (path.size() > 1) {
    read(mount + path, quota);
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) break;
    path.resize(slash);
  }
  read(mount, quota);
}

bool lists_cpu(const std::string& controllers) {
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');)
    if (name == "cpu") return true;
  return false;
}

}  // namespace

int cgroup_cpu_limit(const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  Quota quota;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // hierarchy-id:controllers:path
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      walk_up(mount, path, quota, read_v2);
    } else if (lists_cpu(controllers)) {
      walk_up(mount + "/cpu", path, quota, read_v1);
      walk_up(mount + "/" + controllers, path, quota, read_v1);
    }
  }
  if (quota.cpus == 0) return 0;
  const int whole = static_cast<int>(std::min(quota.cpus, 1e6));
  return std::max(1, whole + (quota.cpus > whole ? 1 : 0));
}

}  // namespace millrace
