#include "kernels/core/peaks.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#include "kernels/core/check.h"

namespace millrace {
namespace {

// Sum of 64-bit words in eight chains, which the compiler turns into vector loads.
uint64_t read_words(const uint64_t* words, int64_t count) {
  uint64_t sums[8] = {};
  for (int64_t i = 0; i + 8 <= count; i += 8)
    for (int j = 0; j < 8; ++j) sums[j] += words[i + j];
  uint64_t total = 0;
  for (const uint64_t s : sums) total += s;
  return total;
}

}  // namespace

StreamRate measure_stream_read(const Pool& pool, int64_t bytes, int runs) {
  void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {};
  madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  const int64_t words = bytes / 8;
  uint64_t* data = static_cast<uint64_t*>(memory);
  pool.split(words,
             [&](int64_t begin, int64_t end) { std::fill(data + begin, data + end, uint64_t{1}); });
  std::vector<double> rates;
  std::atomic<uint64_t> sink{0};
  for (int run = 0; run < runs; ++run) {
    const auto start = std::chrono::steady_clock::now();
    pool.split(words,
               [&](int64_t begin, int64_t end) { sink += read_words(data + begin, end - begin); });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    rates.push_back(static_cast<double>(bytes) / seconds.count());
  }
  MR_CHECK(sink.load() > 0);
  munmap(memory, static_cast<size_t>(bytes));
  std::sort(rates.begin(), rates.end());
  return {rates[rates.size() / 2], rates.back()};
}

}  // namespace millrace
