// Pool: the compute threads of the CPU backend. `size()` threads take part in every run, the
// caller being one of them; helpers spin for a short while after a run and then park on a futex.
// Owned by the executor; run() may be called by one thread at a time (the device thread).
//
// Work is split statically by the caller (task i of n), so which thread computes an element never
// changes the arithmetic that produces it.
#pragma once

#include <cstdint>
#include <memory>

namespace millrace {

// CPUs that this process may use: the affinity mask, bounded by the cgroup (v2 or v1) CPU quota
// rounded up, and at least 1.
int available_cpus();

class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int size() const { return size_; }

  // Calls f(thread_idx) once on each of the size() threads and returns when all have finished.
  // f must not throw.
  template <class F>
  void run(F&& f) const {
    run_erased([](void* context, int thread_idx) { (*static_cast<F*>(context))(thread_idx); },
               const_cast<void*>(static_cast<const void*>(&f)));
  }

  // The share of [0, n) that split() gives a thread; may be empty.
  struct Range {
    int64_t begin, end;
  };
  Range share(int64_t n, int thread_idx) const {
    return {n * thread_idx / size_, n * (thread_idx + 1) / size_};
  }

  // Splits [0, n) into size() contiguous ranges and calls f(begin, end) for the non-empty ones.
  template <class F>
  void split(int64_t n, F&& f) const {
    if (n <= 0) return;
    if (size_ == 1 || n == 1) return f(int64_t{0}, n);
    run([&](int t) {
      const Range range = share(n, t);
      if (range.begin < range.end) f(range.begin, range.end);
    });
  }

 private:
  using Function = void (*)(void* context, int thread_idx);
  void run_erased(Function function, void* context) const;

  struct State;
  int size_;
  std::unique_ptr<State> state_;
};

}  // namespace millrace
