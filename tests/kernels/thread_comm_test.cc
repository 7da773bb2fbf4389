#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>

#include "kernels/comm/comm.h"
#include "kernels/ops.h"
#include "tests/kernels/context_fixture.h"

namespace millrace {
namespace {

void on_every_rank(int size, const std::function<void(Comm&)>& f) {
  const auto comms = make_thread_comms(size);
  std::vector<std::thread> threads;
  for (const auto& comm : comms) threads.emplace_back([&] { f(*comm); });
  for (std::thread& t : threads) t.join();
}

class ThreadCommTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadCommTest, testing::Values(1, 2, 3, 4));

TEST_P(ThreadCommTest, SumsInRankOrderWithTheSameBitsEverywhere) {
  const int size = GetParam();
  for (const size_t n : {size_t{0}, size_t{1}, size_t{1000}}) {
    std::vector<std::vector<float>> parts;
    for (int r = 0; r < size; ++r) parts.push_back(random_floats(n, r, r == 1 ? 1e6f : 1.0f));
    std::vector<float> expected = parts[0];
    for (int r = 1; r < size; ++r)
      for (size_t i = 0; i < n; ++i) expected[i] += parts[r][i];
    on_every_rank(size, [&](Comm& comm) {
      EXPECT_EQ(comm.size(), size);
      std::vector<float> x = parts[comm.rank()];
      comm.all_reduce_sum(x.data(), static_cast<int64_t>(n));
      EXPECT_EQ(x, expected) << "rank " << comm.rank();
    });
  }
}

TEST_P(ThreadCommTest, GathersInRankOrder) {
  const int size = GetParam();
  on_every_rank(size, [&](Comm& comm) {
    const std::vector<float> x = {comm.rank() + 0.25f, comm.rank() + 0.5f};
    std::vector<float> out(2 * size);
    comm.all_gather(out.data(), x.data(), 2);
    for (int r = 0; r < size; ++r) {
      EXPECT_EQ(out[2 * r], r + 0.25f);
      EXPECT_EQ(out[2 * r + 1], r + 0.5f);
    }
  });
}

// Every rank changes its data right after a call, and lags behind at times.
TEST_P(ThreadCommTest, ManyCallsInARowDoNotMix) {
  const int size = GetParam();
  on_every_rank(size, [&](Comm& comm) {
    std::vector<float> x(16), all(16 * size);
    for (int round = 0; round < 300; ++round) {
      if ((round + comm.rank()) % 97 == 0) std::this_thread::yield();
      std::fill(x.begin(), x.end(), static_cast<float>(round + comm.rank()));
      if (round % 3 == 0) {
        comm.all_gather(all.data(), x.data(), 16);
        for (int r = 0; r < size; ++r) ASSERT_EQ(all[16 * r + 5], round + r);
      } else {
        comm.all_reduce_sum(x.data(), 16);
        ASSERT_EQ(x[7], size * round + size * (size - 1) / 2);
      }
    }
  });
}

TEST_P(ThreadCommTest, TheOpsConcatenateColumnsAndReduce) {
  const int size = GetParam();
  on_every_rank(size, [&](Comm& comm) {
    TestContext base(CpuLevel::reference);
    Ctx c = base;
    c.comm = &comm;
    constexpr int64_t kRows = 3, kColumns = 2;
    std::vector<float> x(kRows * kColumns), out(kRows * kColumns * size);
    for (int64_t i = 0; i < kRows * kColumns; ++i) x[i] = static_cast<float>(10 * comm.rank() + i);
    all_gather_columns(c, Tensor(out.data(), DType::f32, {kRows, kColumns * size}),
                       Tensor(x.data(), DType::f32, {kRows, kColumns}));
    for (int64_t t = 0; t < kRows; ++t)
      for (int64_t i = 0; i < kColumns * size; ++i)
        ASSERT_EQ(out[t * kColumns * size + i], 10 * (i / kColumns) + t * kColumns + i % kColumns);
    all_reduce(c, Tensor(x.data(), DType::f32, {kRows, kColumns}));
    ASSERT_EQ(x[5], 5 * size + 10 * size * (size - 1) / 2);
  });
}

}  // namespace
}  // namespace millrace
