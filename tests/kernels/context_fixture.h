// A context with its own pool and arena for one instruction-set level and number of threads.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "kernels/core/context.h"

namespace millrace {

class TestContext {
 public:
  explicit TestContext(CpuLevel level, int threads = 1, size_t arena_bytes = size_t{32} << 20)
      : pool_(threads), memory_(arena_bytes + Arena::kAlignment) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    arena_ = Arena(memory_.data() + (Arena::kAlignment - address % Arena::kAlignment), arena_bytes);
    ctx_.cpu_level = level;
    ctx_.pool = &pool_;
    ctx_.arena = &arena_;
  }
  operator const Ctx&() const { return ctx_; }  // NOLINT(runtime/explicit)
  const Ctx& ctx() const { return ctx_; }

 private:
  Pool pool_;
  std::vector<char> memory_;
  Arena arena_;
  Ctx ctx_;
};

inline bool has_level(CpuLevel level) { return level <= best_cpu_level(); }

inline std::vector<float> random_floats(size_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> x(n);
  for (float& v : x) v = normal(generator);
  return x;
}

}  // namespace millrace

#define SKIP_WITHOUT_LEVEL(level) \
  if (!::millrace::has_level(level)) GTEST_SKIP() << "this CPU has no " << cpu_level_name(level)
