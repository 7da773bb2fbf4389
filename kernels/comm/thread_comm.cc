// Ranks as threads of one process: each publishes the address of its data, meets the others at a
// barrier, reads theirs, and meets them again before anybody may change what was read.
#include <algorithm>
#include <atomic>
#include <thread>

#include "kernels/comm/comm.h"
#include "kernels/core/check.h"

namespace millrace {
namespace {

// All ranks arrive, then all go on. Spins shortly (ranks run in step), then yields.
class Barrier {
 public:
  explicit Barrier(int size) : size_(size) {}

  void wait() {
    const uint32_t round = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
      if (spins < kSpins)
        __builtin_ia32_pause();
      else
        std::this_thread::yield();
    }
  }

 private:
  static constexpr int kSpins = 2000;

  const int size_;
  std::atomic<int> arrived_{0};
  std::atomic<uint32_t> round_{0};
};

// Owned by all ranks of the group together: the last one to go destroys it.
struct Group {
  explicit Group(int size) : barrier(size), sources(static_cast<size_t>(size)) {}

  Barrier barrier;
  std::vector<const float*> sources;  // by rank; each written by its rank before a barrier
};

class ThreadComm : public Comm {
 public:
  ThreadComm(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->sources.size()); }

  void all_reduce_sum(float* x, int64_t n) override {
    if (n > static_cast<int64_t>(sum_.size())) sum_.resize(static_cast<size_t>(n));
    group_->sources[static_cast<size_t>(rank_)] = x;
    group_->barrier.wait();
    std::copy_n(group_->sources[0], n, sum_.data());
    for (size_t r = 1; r < group_->sources.size(); ++r) {
      const float* other = group_->sources[r];
      for (int64_t i = 0; i < n; ++i) sum_[static_cast<size_t>(i)] += other[i];
    }
    group_->barrier.wait();
    std::copy_n(sum_.data(), n, x);
  }

  void all_gather(float* out, const float* x, int64_t n) override {
    group_->sources[static_cast<size_t>(rank_)] = x;
    group_->barrier.wait();
    for (size_t r = 0; r < group_->sources.size(); ++r)
      std::copy_n(group_->sources[r], n, out + static_cast<int64_t>(r) * n);
    group_->barrier.wait();
  }

 private:
  const std::shared_ptr<Group> group_;
  const int rank_;
  std::vector<float> sum_;
};

}  // namespace

std::vector<std::unique_ptr<Comm>> make_thread_comms(int size) {
  MR_CHECK_OP(size, >=, 1);
  const auto group = std::make_shared<Group>(size);
  std::vector<std::unique_ptr<Comm>> comms;
  for (int rank = 0; rank < size; ++rank)
    comms.push_back(std::make_unique<ThreadComm>(group, rank));
  return comms;
}

}  // namespace millrace
