#include "engine/exec/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace millrace {
namespace {

ModelConfig config_with_windows(std::vector<int> windows) {
  ModelConfig config;
  config.layers = static_cast<int64_t>(windows.size());
  config.kv_heads = 2;
  config.head_dim = 16;
  config.window = std::move(windows);
  return config;
}

KvCacheOptions options_with(int64_t memory) {
  KvCacheOptions o;
  o.memory_bytes = memory;
  o.max_num_seqs = 2;
  o.max_num_batched_tokens = 32;
  o.max_model_len = 4096;
  return o;
}

// One layer's block: 16 tokens x 2 heads x 16 elements, keys and values, two bytes each.
constexpr int64_t kLayerBlock = 16 * 2 * 16 * 2 * 2;

TEST(KvGroups, LayersOfOneLifetimeShareAGroup) {
  const auto groups =
      plan_kv_groups(config_with_windows({0, 64, 0, 64, 64}), options_with(1 << 20));
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].layers, (std::vector<int>{0, 2}));
  EXPECT_EQ(groups[1].layers, (std::vector<int>{1, 3, 4}));
  EXPECT_EQ(groups[0].block_bytes, 2 * kLayerBlock);
  EXPECT_EQ(groups[1].block_bytes, 3 * kLayerBlock);
}

TEST(KvGroups, AWindowGroupLeavesWhatItCannotUseToTheOthers) {
  const int64_t memory = int64_t{1} << 24;
  const auto groups = plan_kv_groups(config_with_windows({0, 64}), options_with(memory));
  // Two sequences of (64 + 32) / 16 blocks and two partial ones each.
  EXPECT_EQ(groups[1].num_blocks, 2 * (96 / 16 + 2));
  EXPECT_EQ(groups[0].num_blocks, (memory - groups[1].num_blocks * kLayerBlock) / kLayerBlock);
}

TEST(KvGroups, AModelOfWindowsOnlyUsesAllOfTheMemory) {
  const auto groups = plan_kv_groups(config_with_windows({64, 64}), options_with(1 << 20));
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].num_blocks, (1 << 20) / (2 * kLayerBlock));
}

TEST(KvCache, RefusesMemoryBelowOneBlock) {
  const auto cache = KvCache::create(config_with_windows({0}), options_with(kLayerBlock - 1));
  ASSERT_FALSE(cache.ok());
  EXPECT_NE(status_message(cache.status()).find("--kv-cache-memory-bytes"), std::string::npos);
  EXPECT_TRUE(KvCache::create(config_with_windows({0}), options_with(kLayerBlock)).ok());
}

TEST(KvCache, LayersAndBlocksDoNotOverlap) {
  auto cache = KvCache::create(config_with_windows({0, 64, 0}), options_with(1 << 18));
  ASSERT_TRUE(cache.ok());
  const auto infos = cache->group_infos();
  std::vector<std::pair<char*, char*>> spans;
  for (const KvBinding& b : cache->bindings())
    for (int64_t i = 0; i < infos[static_cast<size_t>(b.group)].num_blocks; ++i) {
      char* begin = b.layer.data + i * b.layer.block_stride;
      std::memset(begin, 1, kLayerBlock);
      spans.emplace_back(begin, begin + kLayerBlock);
    }
  std::sort(spans.begin(), spans.end());
  for (size_t i = 1; i < spans.size(); ++i) EXPECT_GE(spans[i].first, spans[i - 1].second);
  EXPECT_EQ(kv_bytes_per_token(config_with_windows({0, 64, 0}), DType::bf16), 2 * kLayerBlock / 16);
}

}  // namespace
}  // namespace millrace
