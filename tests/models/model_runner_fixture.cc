#include "tests/models/model_runner_fixture.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "models/registry.h"

namespace millrace {
namespace {

constexpr int kBlock = 16;

}  // namespace

std::string golden_path(const std::string& name) {
  return std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/" + name;
}

std::unique_ptr<ModelRunner> ModelRunner::load(const std::string& path,
                                               const RunnerOptions& options) {
  auto checkpoint = Checkpoint::open(path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  if (!checkpoint.ok()) return nullptr;
  std::unique_ptr<ModelRunner> runner(new ModelRunner);
  runner->options_ = options;
  runner->checkpoint_ = *std::move(checkpoint);
  runner->model_ = make_model(runner->config(), options.tp, options.max_len);
  const Status loaded = runner->checkpoint_->load_weights(*runner->model_, options.tp, options.type,
                                                          options.threads, runner->store_, nullptr);
  EXPECT_TRUE(loaded.ok()) << loaded;
  if (!loaded.ok()) return nullptr;
  runner->pool_ = std::make_unique<Pool>(options.threads);
  runner->make_cache();
  runner->make_arena();
  return runner;
}

void ModelRunner::make_cache() {
  const ModelConfig& c = config();
  const auto kv_heads = static_cast<int>(std::max<int64_t>(1, c.kv_heads / options_.tp.size));
  const auto head_dim = static_cast<int>(c.head_dim);
  const int64_t bytes = kv_layer_block_bytes(DType::f32, kBlock, kv_heads, head_dim);
  const int64_t blocks = (options_.max_len + kBlock - 1) / kBlock;
  cache_.resize(static_cast<size_t>(c.layers));
  for (size_t i = 0; i < cache_.size(); ++i) {
    cache_[i].resize(static_cast<size_t>(bytes * blocks));
    KvLayer layer{cache_[i].data(), bytes, DType::f32, kBlock, kv_heads, head_dim, c.window[i]};
    kv_.push_back({static_cast<int>(i), layer});
  }
}

void ModelRunner::make_arena() {
  const std::vector<int32_t> tokens(static_cast<size_t>(options_.max_len), 0);
  Arena measuring;
  forward(measuring, tokens, 0, options_.max_len, nullptr, nullptr);
  arena_memory_.resize(measuring.high_water() + Arena::kAlignment);
}

void ModelRunner::forward(Arena& arena, const std::vector<int32_t>& tokens, int64_t start,
                          int64_t count, float* hidden, float* logits) {
  std::vector<int32_t> positions, rows, slots;
  const int64_t blocks = (options_.max_len + kBlock - 1) / kBlock;
  const auto block_of = [&](int64_t i) { return static_cast<int32_t>(blocks - 1 - i); };
  for (int64_t i = 0; i < count; ++i) {
    const int64_t position = start + i;
    positions.push_back(static_cast<int32_t>(position));
    rows.push_back(static_cast<int32_t>(i));
    slots.push_back(block_of(position / kBlock) * kBlock + static_cast<int32_t>(position % kBlock));
  }
  std::vector<std::vector<int32_t>> tables;
  std::vector<AttentionSequence> sequences;
  for (const KvBinding& binding : kv_) {
    // Blocks that lie wholly before the window of the first row are not needed any more.
    const int64_t window = binding.layer.window;
    const int64_t first = window > 0 ? std::max<int64_t>(0, start + 1 - window) : 0;
    tables.emplace_back();
    for (int64_t b = 0; b < blocks; ++b) {
      tables.back().push_back((b + 1) * kBlock <= first ? -1 : block_of(b));
    }
    sequences.push_back({0, static_cast<int32_t>(count), static_cast<int32_t>(start + count),
                         tables.back().data()});
  }
  std::vector<Step::Group> groups;
  for (const AttentionSequence& sequence : sequences) groups.push_back({slots, {&sequence, 1}});
  const Step step{std::span(tokens).subspan(static_cast<size_t>(start), static_cast<size_t>(count)),
                  positions, groups, rows};
  const Ctx c{Device::cpu, options_.level, pool_.get(), &arena, options_.comm};
  const Tensor hidden_view(hidden, DType::f32, {count, config().hidden});
  model_->forward(c, step, kv_, hidden_view);
  model_->logits(c, Tensor(logits, DType::f32, {count, config().vocab}), hidden_view);
}

std::vector<float> ModelRunner::compute(const std::vector<int32_t>& tokens, int64_t start,
                                        int64_t count) {
  std::vector<float> hidden(static_cast<size_t>(count * config().hidden));
  std::vector<float> logits(static_cast<size_t>(count * config().vocab));
  const auto address = reinterpret_cast<uintptr_t>(arena_memory_.data());
  const size_t skip = (Arena::kAlignment - address % Arena::kAlignment) % Arena::kAlignment;
  Arena arena(arena_memory_.data() + skip, arena_memory_.size() - Arena::kAlignment);
  forward(arena, tokens, start, count, hidden.data(), logits.data());
  return logits;
}

std::vector<float> ModelRunner::compute_all(const std::vector<int32_t>& tokens, int64_t chunk) {
  std::vector<float> all;
  const auto size = static_cast<int64_t>(tokens.size());
  for (int64_t start = 0; start < size; start += chunk) {
    const std::vector<float> part = compute(tokens, start, std::min(chunk, size - start));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace millrace
