#include "kernels/peaks.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "kernels/core/check.h"
#include "kernels/cpu/peak_loops.h"

namespace millrace {
namespace {

constexpr int64_t kStepsPerRun = 1 << 20;

// Sum of 64-bit words in eight chains, which the compiler turns into vector loads.
uint64_t read_words(const uint64_t* words, int64_t count) {
  uint64_t sums[8] = {};
  for (int64_t i = 0; i + 8 <= count; i += 8)
    for (int j = 0; j < 8; ++j) sums[j] += words[i + j];
  uint64_t total = 0;
  for (const uint64_t s : sums) total += s;
  return total;
}

// The rate of `work`, which returns how much it did.
template <class Work>
Rate rate_of(int runs, const Work& work) {
  std::vector<double> rates;
  for (int run = 0; run < runs; ++run) {
    const auto start = std::chrono::steady_clock::now();
    const double done = work();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    rates.push_back(done / seconds.count());
  }
  std::sort(rates.begin(), rates.end());
  return {rates[rates.size() / 2], rates.back()};
}

cpu::PeakLoops loops_of(CpuLevel level) {
  switch (level) {
    case CpuLevel::reference: return cpu::peak_loops_reference();
    case CpuLevel::avx2: return cpu::peak_loops_avx2();
    case CpuLevel::avx512: return cpu::peak_loops_avx512();
  }
  fatal("no such CPU level");
}

}  // namespace

Rate measure_stream_read(const Pool& pool, int64_t bytes, int runs) {
  void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {};
  madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  const int64_t words = bytes / 8;
  uint64_t* data = static_cast<uint64_t*>(memory);
  pool.split(words,
             [&](int64_t begin, int64_t end) { std::fill(data + begin, data + end, uint64_t{1}); });
  std::atomic<uint64_t> sink{0};
  const Rate rate = rate_of(runs, [&] {
    pool.split(words,
               [&](int64_t begin, int64_t end) { sink += read_words(data + begin, end - begin); });
    return static_cast<double>(bytes);
  });
  MR_CHECK(sink.load() > 0);
  munmap(memory, static_cast<size_t>(bytes));
  return rate;
}

Rate measure_arithmetic(const Pool& pool, CpuLevel level, Arithmetic arithmetic, int runs) {
  const cpu::PeakLoops loops = loops_of(level);
  const auto loop = arithmetic == Arithmetic::f32    ? loops.f32
                    : arithmetic == Arithmetic::bf16 ? loops.bf16
                                                     : loops.int8;
  loop(kStepsPerRun);  // wakes the wide units
  return rate_of(runs, [&] {
    std::atomic<double> done{0.0};
    pool.run([&](int) { done.fetch_add(loop(kStepsPerRun)); });
    return done.load();
  });
}

}  // namespace millrace
