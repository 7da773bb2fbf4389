// Batch invariance of the whole engine on real checkpoints: a request's tokens and
// log-probabilities are the same bits alone, among others, however the prompt is chunked, with the
// prefix cached or not, after preemptions, and with any number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>

#include "engine/engine.h"
#include "engine/exec/cpu_executor.h"
#include "engine/load/load.h"
#include "models/registry.h"

namespace millrace {
namespace {

struct Checkpoint32 {
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Model> model;
  WeightStore store;
};

constexpr int64_t kMaxLen = 512;

Checkpoint32 load(const std::string& path, WeightType type) {
  Checkpoint32 out;
  auto opened = Checkpoint::open(path);
  if (!opened.ok()) ADD_FAILURE() << opened.status().ToString();
  out.checkpoint = *std::move(opened);
  out.model = make_model(out.checkpoint->config(), {}, kMaxLen);
  const Status status = out.checkpoint->load_weights(*out.model, {}, type, 2, out.store, {});
  EXPECT_TRUE(status.ok()) << status.ToString();
  return out;
}

// What a client can observe of one request, floats as bits.
struct Observed {
  std::vector<Token> tokens;
  std::vector<uint32_t> logprobs;
  int cached = 0;
  Finish finish = Finish::none;
  bool operator==(const Observed& o) const {
    return tokens == o.tokens && logprobs == o.logprobs && finish == o.finish;
  }
};

struct Setting {
  int threads = 1;
  int budget = 512;
  int64_t kv_blocks = 4096;  // per group
  bool prefix_caching = true;
  CpuLevel level = best_cpu_level();
};

class Runner {
 public:
  Runner(const Checkpoint32& model, const Setting& s) {
    const ModelConfig& config = model.checkpoint->config();
    CpuExecutorOptions options;
    options.threads = s.threads;
    options.level = s.level;
    options.kv.max_num_seqs = 64;
    options.kv.max_num_batched_tokens = s.budget;
    options.kv.max_model_len = kMaxLen;
    int64_t block_bytes = 0;
    for (const KvGroupPlan& g : plan_kv_groups(config, options.kv)) block_bytes += g.block_bytes;
    options.kv.memory_bytes = s.kv_blocks * block_bytes;
    auto executor = make_cpu_executor(*model.model, config, options);
    EXPECT_TRUE(executor.ok()) << executor.status().ToString();
    EngineOptions engine_options;
    engine_options.max_model_len = kMaxLen;
    engine_options.max_num_seqs = 64;
    engine_options.max_num_batched_tokens = s.budget;
    engine_options.enable_prefix_caching = s.prefix_caching;
    engine_ = std::make_unique<Engine>(
        engine_options, *std::move(executor),
        [this](std::vector<TokenEvent>&& events) { on_events(std::move(events)); });
  }

  // Runs all at once and returns what each gave, in order.
  std::vector<Observed> run(std::vector<Request> requests) {
    std::vector<RequestId> ids;
    {
      const std::lock_guard lock(mutex_);
      observed_.clear();
      open_ = requests.size();
    }
    for (Request& request : requests) {
      request.id = next_id_++;
      ids.push_back(request.id);
      const Status status = engine_->submit(std::move(request));
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return open_ == 0; });
    std::vector<Observed> out;
    for (const RequestId id : ids) out.push_back(observed_[id]);
    return out;
  }

  EngineStats stats() const { return engine_->stats(); }

 private:
  void on_events(std::vector<TokenEvent>&& events) {
    const std::lock_guard lock(mutex_);
    for (const TokenEvent& e : events) {
      Observed& o = observed_[e.id];
      if (e.cached_tokens > 0) o.cached = e.cached_tokens;
      if (e.token >= 0) {
        o.tokens.push_back(e.token);
        o.logprobs.push_back(std::bit_cast<uint32_t>(e.logprob));
        for (const TopLogprob& t : e.top) {
          o.tokens.push_back(t.token);
          o.logprobs.push_back(std::bit_cast<uint32_t>(t.logprob));
        }
      }
      if (e.finish == Finish::none) continue;
      EXPECT_EQ(e.error, "");
      o.finish = e.finish;
      if (--open_ == 0) done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable done_;
  std::map<RequestId, Observed> observed_;
  size_t open_ = 0;
  RequestId next_id_ = 1;
  std::unique_ptr<Engine> engine_;  // last: its thread uses the members above
};

// Prompt i, of a length that is no multiple of anything, sampled or greedy by turns.
Request make_request(int i, int64_t vocab, int length, int output) {
  std::mt19937 random(static_cast<uint32_t>(1000 + i));
  Request request;
  for (int t = 0; t < length; ++t)
    request.prompt.push_back(static_cast<Token>(random() % static_cast<uint64_t>(vocab)));
  request.sampling.temperature = i % 3 == 0 ? 0.0f : 0.9f;
  request.sampling.top_p = i % 3 == 2 ? 0.8f : 1.0f;
  request.sampling.repetition_penalty = i % 4 == 1 ? 1.1f : 1.0f;
  request.sampling.seed = static_cast<uint64_t>(7 + i);
  request.sampling.logprobs = 3;
  request.stop.max_tokens = output;
  request.stop.ignore_eos = true;
  return request;
}

struct Case {
  std::string name, path;
  WeightType type;
  int length, output;
};

class Invariance : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().path.empty()) GTEST_SKIP() << "MILLRACE_TEST_MODEL is not set";
    model_ = load(GetParam().path, GetParam().type);
    for (int i = 0; i < 32; ++i)
      requests_.push_back(make_request(i, model_.checkpoint->config().vocab,
                                       GetParam().length + 5 * (i % 7), GetParam().output));
    Setting alone;
    alone.prefix_caching = false;
    Runner runner(model_, alone);
    for (const int i : kWatched) expected_[i] = runner.run({requests_[static_cast<size_t>(i)]})[0];
  }

  void expect_equal(const std::vector<Observed>& all, const char* how) {
    for (const int i : kWatched)
      EXPECT_TRUE(all[static_cast<size_t>(i)] == expected_[i]) << how << ", request " << i;
  }

  static constexpr int kWatched[] = {0, 1, 2};
  Checkpoint32 model_;
  std::vector<Request> requests_;
  std::map<int, Observed> expected_;
};

TEST_P(Invariance, AmongOthers) {
  Runner runner(model_, {.threads = 2, .prefix_caching = false});
  expect_equal(runner.run(requests_), "among 31 others");
}

TEST_P(Invariance, ChunkedPrompts) {
  for (const int budget : {1, 7, 64, 512}) {
    Runner runner(model_, {.budget = budget, .prefix_caching = false});
    std::vector<Request> three(requests_.begin(), requests_.begin() + 3);
    expect_equal(runner.run(three), ("chunks of " + std::to_string(budget)).c_str());
  }
}

TEST_P(Invariance, CachedPrefix) {
  Runner runner(model_, {});
  std::vector<Request> three(requests_.begin(), requests_.begin() + 3);
  expect_equal(runner.run(three), "first time");
  const std::vector<Observed> again = runner.run(three);
  expect_equal(again, "from the cache");
  for (const Observed& o : again) EXPECT_GE(o.cached, 16);
}

TEST_P(Invariance, Preempted) {
  const std::vector<int>& windows = model_.checkpoint->config().window;
  if (!windows.empty() && std::count(windows.begin(), windows.end(), 0) == 0)
    GTEST_SKIP() << "a sequence of windows only never needs more room than it was admitted with";
  const int blocks_each = (GetParam().length + 30 + GetParam().output + 15) / 16;
  Runner runner(model_, {.kv_blocks = blocks_each * 3, .prefix_caching = false});
  expect_equal(runner.run(requests_), "with little room");
  EXPECT_GE(runner.stats().preemptions, 2);
  EXPECT_EQ(runner.stats().kv_blocks_used, 0);
}

TEST_P(Invariance, Threads) {
  for (const int threads : {1, 2, 3}) {
    Runner runner(model_, {.threads = threads});
    std::vector<Request> three(requests_.begin(), requests_.begin() + 3);
    expect_equal(runner.run(three), ("threads " + std::to_string(threads)).c_str());
  }
}

std::vector<Case> cases() {
  const std::string tiny = MILLRACE_SOURCE_DIR "/tests/golden/tiny/";
  std::vector<Case> all;
  for (const char* name : {"llama", "mistral-window", "qwen2-window", "qwen3"}) {
    std::string safe = name;
    std::replace(safe.begin(), safe.end(), '-', '_');
    all.push_back({safe + "_bf16", tiny + name, WeightType::bfloat16, 77, 40});
    all.push_back({safe + "_f32", tiny + name, WeightType::float32, 77, 40});
  }
  const char* model = std::getenv("MILLRACE_TEST_MODEL");
  all.push_back({"default_model", model ? model : "", WeightType::automatic, 77, 24});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Invariance, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace millrace
