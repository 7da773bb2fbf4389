// Every family and rotary scaling against logits of the Hugging Face reference.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "models/registry.h"
#include "tests/models/model_runner_fixture.h"

namespace millrace {
namespace {

struct Golden {
  std::vector<int32_t> tokens;
  std::vector<int64_t> rows;
  int64_t prefill = 0, max_len = 0, vocab = 0;
  std::vector<float> logits;  // [rows, vocab]
};

Golden read_golden(const std::string& name) {
  Golden g;
  const std::string folder = golden_path("tiny/" + name);
  std::ifstream text(folder + "/golden.json");
  const nlohmann::json json = nlohmann::json::parse(text);
  json.at("tokens").get_to(g.tokens);
  json.at("rows").get_to(g.rows);
  json.at("prefill").get_to(g.prefill);
  json.at("max_len").get_to(g.max_len);
  json.at("vocab").get_to(g.vocab);
  g.logits.resize(g.rows.size() * static_cast<size_t>(g.vocab));
  std::ifstream data(folder + "/logits.bin", std::ios::binary);
  data.read(reinterpret_cast<char*>(g.logits.data()),
            static_cast<std::streamsize>(g.logits.size() * sizeof(float)));
  EXPECT_EQ(data.gcount(), static_cast<std::streamsize>(g.logits.size() * sizeof(float)));
  return g;
}

// Largest difference over the largest magnitude.
double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  EXPECT_EQ(got.size(), want.size());
  double worst = 0.0, largest = 0.0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (!std::isfinite(got[i])) return INFINITY;
    worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - want[i]));
    largest = std::max(largest, std::fabs(static_cast<double>(want[i])));
  }
  return worst / largest;
}

std::vector<float> golden_rows(const Golden& g, const std::vector<float>& all) {
  std::vector<float> out;
  for (const int64_t row : g.rows) {
    out.insert(out.end(), all.begin() + row * g.vocab, all.begin() + (row + 1) * g.vocab);
  }
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<CpuLevel> levels() {
  std::vector<CpuLevel> all;
  for (int l = 0; l <= static_cast<int>(best_cpu_level()); ++l) {
    all.push_back(static_cast<CpuLevel>(l));
  }
  return all;
}

class LlamaGolden : public testing::TestWithParam<const char*> {};

TEST_P(LlamaGolden, EveryChunkingEqualsTheReference) {
  const Golden g = read_golden(GetParam());
  for (const CpuLevel level : levels()) {
    RunnerOptions options;
    options.max_len = g.max_len;
    options.level = level;
    const auto runner = ModelRunner::load(golden_path(std::string("tiny/") + GetParam()), options);
    ASSERT_NE(runner, nullptr);
    // In one go; then the prompt at once and token by token; then in chunks.
    const std::vector<float> whole = runner->compute_all(g.tokens, g.max_len);
    EXPECT_LE(relative_error(golden_rows(g, whole), g.logits), 1e-4) << cpu_level_name(level);
    std::vector<float> decoded = runner->compute(g.tokens, 0, g.prefill);
    for (int64_t i = g.prefill; i < g.max_len; ++i) {
      const std::vector<float> row = runner->compute(g.tokens, i, 1);
      decoded.insert(decoded.end(), row.begin(), row.end());
    }
    EXPECT_TRUE(same_bits(decoded, whole)) << cpu_level_name(level);
    for (const int64_t chunk : {1, 7, 16}) {
      EXPECT_TRUE(same_bits(runner->compute_all(g.tokens, chunk), whole))
          << cpu_level_name(level) << ", chunks of " << chunk;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, LlamaGolden,
                         testing::Values("llama", "llama-linear", "llama-dynamic", "llama-llama3",
                                         "llama-yarn", "llama-longrope", "mistral-window",
                                         "smollm2", "qwen2", "qwen2-window", "qwen3"));

class GgufTwin : public testing::TestWithParam<const char*> {};

TEST_P(GgufTwin, EqualsTheSafetensorsCheckpointBitForBit) {
  const Golden g = read_golden(GetParam());
  RunnerOptions options;
  options.max_len = g.max_len;
  options.level = best_cpu_level();
  const std::string path = golden_path(std::string("tiny/") + GetParam());
  const auto folder = ModelRunner::load(path, options);
  const auto file = ModelRunner::load(path + ".gguf", options);
  ASSERT_NE(folder, nullptr);
  ASSERT_NE(file, nullptr);
  const std::vector<float> logits = file->compute_all(g.tokens, g.max_len);
  EXPECT_TRUE(same_bits(logits, folder->compute_all(g.tokens, g.max_len)));
  EXPECT_LE(relative_error(golden_rows(g, logits), g.logits), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Architectures, GgufTwin,
                         testing::Values("llama", "llama-llama3", "qwen2", "qwen3"));

// Logits of every rank of a tensor-parallel group, each on its own thread.
std::vector<std::vector<float>> run_ranks(const std::string& name, const Golden& g, int size,
                                          WeightType type) {
  const auto comms = make_thread_comms(size);
  std::vector<std::vector<float>> results(static_cast<size_t>(size));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      RunnerOptions options;
      options.tp = {rank, size};
      options.comm = comms[static_cast<size_t>(rank)].get();
      options.max_len = g.max_len;
      options.level = best_cpu_level();
      options.type = type;
      const auto runner = ModelRunner::load(golden_path("tiny/" + name), options);
      if (runner) results[static_cast<size_t>(rank)] = runner->compute_all(g.tokens, 24);
    });
  }
  threads.clear();
  return results;
}

TEST(TensorParallelism, RanksAgreeWithOneRank) {
  // With two key/value heads, four ranks replicate each of them.
  const std::pair<const char*, int> cases[] = {{"llama", 2},         {"llama", 4}, {"qwen2", 2},
                                               {"qwen2", 4},         {"qwen3", 2}, {"qwen3", 4},
                                               {"mistral-window", 2}};
  for (const auto& [name, size] : cases) {
    SCOPED_TRACE(std::string(name) + " on " + std::to_string(size) + " ranks");
    const Golden g = read_golden(name);
    const auto one = run_ranks(name, g, 1, WeightType::float32);
    const auto many = run_ranks(name, g, size, WeightType::float32);
    const auto again = run_ranks(name, g, size, WeightType::float32);
    for (size_t rank = 0; rank < many.size(); ++rank) {
      EXPECT_LE(relative_error(many[rank], one[0]), 1e-5);
      EXPECT_TRUE(same_bits(many[rank], many[0]));
      EXPECT_TRUE(same_bits(many[rank], again[rank]));
    }
  }
}

TEST(TensorParallelism, HeadsAreDividedReplicatedOrRefused) {
  ModelConfig config;
  config.heads = 12;
  config.ffn = 48;
  config.vocab = 48;
  for (const int64_t kv_heads : {1, 2, 3, 4, 6}) {
    for (const int size : {1, 2, 4, 6}) {
      config.kv_heads = kv_heads;
      const std::string refusal = check_tensor_parallel(config, size);
      const bool fits = kv_heads % size == 0 || size % kv_heads == 0;
      EXPECT_EQ(refusal.empty(), fits) << kv_heads << " on " << size << ": " << refusal;
      if (fits) continue;
      EXPECT_NE(refusal.find(std::to_string(kv_heads)), std::string::npos) << refusal;
      EXPECT_NE(refusal.find(std::to_string(size)), std::string::npos) << refusal;
    }
  }
}

}  // namespace
}  // namespace millrace
