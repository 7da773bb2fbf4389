#include "kernels/core/pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "kernels/core/cgroup.h"
#include "kernels/core/check.h"

namespace millrace {
namespace {

// Long enough to bridge the gap between two ops of a step, short enough that an idle server burns
// nothing and that a preempted helper does not stall the caller's core.
constexpr std::chrono::microseconds kSpin{30};
constexpr int kPausesPerClockRead = 16;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spins until the condition holds or the time is over; says whether it holds. Yields now and then:
// where another process holds a core, two threads of the pool can share the other one, and what the
// first waits for is then the second's turn on it.
template <class Condition>
bool spin_until(Condition&& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      if (condition()) return true;
      pause_cpu();
    }
    sched_yield();
  } while (std::chrono::steady_clock::now() < deadline);
  return condition();
}

// A 32-bit word that threads can wait on. The sleeper announces itself before its last look at the
// value, the waker changes the value before it looks for sleepers; both in the one total order of
// sequentially consistent operations, so one of them always sees the other.
class Futex {
 public:
  std::atomic<uint32_t> value{0};

  void wait_while(uint32_t old) {
    sleepers_.fetch_add(1);
    while (value.load() == old)
      syscall(SYS_futex, address(), FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
    sleepers_.fetch_sub(1);
  }
  void wake_all() {
    if (sleepers_.load() != 0)
      syscall(SYS_futex, address(), FUTEX_WAKE_PRIVATE, 0x7fffffff, nullptr, nullptr, 0);
  }

 private:
  uint32_t* address() { return reinterpret_cast<uint32_t*>(&value); }
  std::atomic<int> sleepers_{0};
};
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

int affinity_cpus() {
  // The kernel refuses a mask smaller than its own; grow until it fits.
  for (int capacity = 1024; capacity <= 1 << 20; capacity *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(capacity));
    if (!set) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(capacity));
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

int available_cpus() {
  const int cpus = affinity_cpus();
  const int limit = cgroup_cpu_limit("");
  return limit > 0 ? std::min(cpus, limit) : cpus;
}

// A run: the caller writes the function, then raises `generation`; each helper that sees a new
// generation calls the function and lowers `pending`; the caller returns when it is zero. The next
// run cannot begin before that, so no helper ever misses a generation.
struct Pool::State {
  alignas(64) Futex generation;
  alignas(64) Futex pending;
  alignas(64) Function function = nullptr;
  void* context = nullptr;
  bool stop = false;
  std::vector<std::thread> helpers;

  void publish() {
    generation.value.fetch_add(1);
    generation.wake_all();
  }

  void help(int thread_idx) {
    for (uint32_t seen = 0;; ++seen) {
      if (!spin_until([&] { return generation.value.load(std::memory_order_acquire) != seen; }))
        generation.wait_while(seen);
      if (stop) return;
      function(context, thread_idx);
      if (pending.value.fetch_sub(1) == 1) pending.wake_all();
    }
  }
};

Pool::Pool(int threads) : size_(std::max(1, threads)), state_(std::make_unique<State>()) {
  for (int i = 1; i < size_; ++i)
    state_->helpers.emplace_back([s = state_.get(), i] { s->help(i); });
}

Pool::~Pool() {
  state_->stop = true;
  state_->publish();
  for (std::thread& helper : state_->helpers) helper.join();
}

void Pool::run_erased(Function function, void* context) const {
  if (size_ == 1) return function(context, 0);
  State& s = *state_;
  MR_CHECK_OP(s.pending.value.load(std::memory_order_relaxed), ==, 0u);
  s.function = function;
  s.context = context;
  s.pending.value.store(static_cast<uint32_t>(size_ - 1), std::memory_order_relaxed);
  s.publish();
  function(context, 0);
  const auto finished = [&] { return s.pending.value.load(std::memory_order_acquire) == 0; };
  if (spin_until(finished)) return;
  for (uint32_t left; (left = s.pending.value.load(std::memory_order_acquire)) != 0;)
    s.pending.wait_while(left);
}

}  // namespace millrace
