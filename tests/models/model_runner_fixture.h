// ModelRunner: one rank of a checkpoint in f32, run directly through Model::forward over an f32
// paged cache, one sequence at a time. For tests; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/load/load.h"
#include "kernels/comm/comm.h"
#include "kernels/core/context.h"

namespace millrace {

std::string golden_path(const std::string& name);  // below tests/golden

struct RunnerOptions {
  TensorParallel tp;
  Comm* comm = nullptr;
  int64_t max_len = 0;
  CpuLevel level = CpuLevel::reference;
  int threads = 1;
  WeightType type = WeightType::float32;
};

class ModelRunner {
 public:
  // Fails the current test and returns null if the checkpoint cannot be loaded.
  static std::unique_ptr<ModelRunner> load(const std::string& path, const RunnerOptions& options);

  // Logits [count, vocab] of tokens [start, start + count), whose predecessors must be computed.
  std::vector<float> compute(const std::vector<int32_t>& tokens, int64_t start, int64_t count);
  // Logits of all tokens, computed `chunk` at a time from the start.
  std::vector<float> compute_all(const std::vector<int32_t>& tokens, int64_t chunk);

  const ModelConfig& config() const { return checkpoint_->config(); }

 private:
  ModelRunner() = default;
  void make_cache();
  void make_arena();
  void forward(Arena& arena, const std::vector<int32_t>& tokens, int64_t start, int64_t count,
               float* hidden, float* logits);

  RunnerOptions options_;
  std::unique_ptr<Checkpoint> checkpoint_;
  WeightStore store_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Pool> pool_;
  std::vector<char> arena_memory_;
  std::vector<std::vector<char>> cache_;  // one buffer a layer
  std::vector<KvBinding> kv_;             // group = layer
};

}  // namespace millrace
