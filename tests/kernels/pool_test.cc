#include "kernels/core/pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "kernels/core/cgroup.h"

namespace millrace {
namespace {

class PoolTest : public testing::TestWithParam<int> {};

TEST_P(PoolTest, EveryThreadRunsOncePerRun) {
  const Pool pool(GetParam());
  ASSERT_EQ(pool.size(), GetParam());
  std::vector<int> calls(static_cast<size_t>(pool.size()), 0);  // one writer each
  constexpr int kRuns = 5000;
  for (int i = 0; i < kRuns; ++i) pool.run([&](int t) { ++calls[static_cast<size_t>(t)]; });
  for (const int n : calls) EXPECT_EQ(n, kRuns);
}

TEST_P(PoolTest, AllHaveFinishedWhenRunReturns) {
  const Pool pool(GetParam());
  std::vector<int64_t> parts(static_cast<size_t>(pool.size()));
  for (int64_t i = 0; i < 2000; ++i) {
    pool.run([&](int t) { parts[static_cast<size_t>(t)] = i; });
    ASSERT_EQ(std::accumulate(parts.begin(), parts.end(), int64_t{0}), i * pool.size());
  }
}

TEST_P(PoolTest, HelpersWakeAfterTheyParked) {
  const Pool pool(GetParam());
  std::atomic<int> calls{0};
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // far beyond the spinning time
    pool.run([&](int) { ++calls; });
  }
  EXPECT_EQ(calls, 20 * pool.size());
}

TEST_P(PoolTest, TheCallerParksWhileHelpersWork) {
  const Pool pool(GetParam());
  std::atomic<int> finished{0};
  for (int i = 0; i < 5; ++i)
    pool.run([&](int t) {
      if (t != 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ++finished;
    });
  EXPECT_EQ(finished, 5 * pool.size());
}

TEST_P(PoolTest, SplitCoversEachIndexOnce) {
  const Pool pool(GetParam());
  for (const int64_t n : {0, 1, 2, 3, 4, 5, 7, 64, 1001}) {
    std::vector<int> seen(static_cast<size_t>(n), 0);
    std::atomic<int> empty{0};
    pool.split(n, [&](int64_t begin, int64_t end) {
      if (begin >= end) ++empty;
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    EXPECT_EQ(empty, 0);
    for (const int times : seen) EXPECT_EQ(times, 1) << n;
  }
}

TEST_P(PoolTest, PoolsNestAndAreDestroyedWhileParkedOrSpinning) {
  for (int i = 0; i < 30; ++i) {
    const Pool outer(GetParam());
    std::atomic<int> calls{0};
    outer.run([&](int) {
      const Pool inner(GetParam());
      inner.run([&](int) { ++calls; });
    });
    EXPECT_EQ(calls, GetParam() * GetParam());
    if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST_P(PoolTest, APoolThatNeverRanCanBeDestroyed) {
  for (int i = 0; i < 100; ++i) const Pool pool(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Sizes, PoolTest, testing::Values(1, 2, 3, 4));

TEST(PoolSizeTest, LessThanOneThreadMeansOne) {
  EXPECT_EQ(Pool(0).size(), 1);
  EXPECT_EQ(Pool(-3).size(), 1);
}

TEST(AvailableCpusTest, LiesBetweenOneAndTheAffinityMask) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  EXPECT_GE(available_cpus(), 1);
  EXPECT_LE(available_cpus(), CPU_COUNT(&mask));
}

TEST(AvailableCpusTest, FollowsTheAffinityMask) {
  int cpus = 0;
  std::thread([&] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(sched_getcpu(), &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
    cpus = available_cpus();
  }).join();
  EXPECT_EQ(cpus, 1);
}

// A directory that looks like the parts of the file system that tell the quota.
class CgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/millrace_cgroup_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string root_;
};

TEST_F(CgroupTest, NoFilesMeanNoLimit) { EXPECT_EQ(cgroup_cpu_limit(root_), 0); }

TEST_F(CgroupTest, V2QuotaIsRoundedUp) {
  write("/proc/self/cgroup", "0::/pod/box\n");
  write("/sys/fs/cgroup/pod/box/cpu.max", "150000 100000\n");
  EXPECT_EQ(cgroup_cpu_limit(root_), 2);
  write("/sys/fs/cgroup/pod/box/cpu.max", "300000 100000\n");
  EXPECT_EQ(cgroup_cpu_limit(root_), 3);
  write("/sys/fs/cgroup/pod/box/cpu.max", "1000 100000\n");
  EXPECT_EQ(cgroup_cpu_limit(root_), 1);
}

TEST_F(CgroupTest, V2MaxIsNoLimitButAnAncestorMayHaveOne) {
  write("/proc/self/cgroup", "0::/pod/box\n");
  write("/sys/fs/cgroup/pod/box/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpu_limit(root_), 0);
  write("/sys/fs/cgroup/pod/cpu.max", "400000 100000\n");
  EXPECT_EQ(cgroup_cpu_limit(root_), 4);
}

TEST_F(CgroupTest, V2InsideAContainerTheMountIsTheGroup) {
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(cgroup_cpu_limit(root_), 2);
}

TEST_F(CgroupTest, V1QuotaOfTheCpuController) {
  write("/proc/self/cgroup", "5:cpuset:/other\n4:cpu,cpuacct:/box\n");
  write("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_limit(root_), 0);
  write("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(cgroup_cpu_limit(root_), 3);
}

TEST_F(CgroupTest, MalformedFilesAreNoLimit) {
  write("/proc/self/cgroup", "nonsense\n0::\n");
  write("/sys/fs/cgroup/cpu.max", "many few\n");
  EXPECT_EQ(cgroup_cpu_limit(root_), 0);
}

}  // namespace
}  // namespace millrace
