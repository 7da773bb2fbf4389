#include "engine/exec/kv_cache.h"

#include <algorithm>
#include <string>
#include <utility>

namespace millrace {
namespace {

int64_t layer_token_bytes(const ModelConfig& config, DType dtype) {
  return kv_layer_block_bytes(dtype, 1, static_cast<int>(config.kv_heads),
                              static_cast<int>(config.head_dim));
}

// A window group can use at most this many blocks: every running sequence's window and the chunk
// that it computes, with a partial block at each end.
int64_t window_blocks_cap(const KvGroupPlan& group, const KvCacheOptions& o) {
  const int64_t tokens =
      std::min<int64_t>(o.max_model_len, int64_t{group.window} + o.max_num_batched_tokens);
  return o.max_num_seqs * (tokens / o.block_size + 2);
}

}  // namespace

int64_t kv_bytes_per_token(const ModelConfig& config, DType dtype) {
  const auto full = std::count(config.window.begin(), config.window.end(), 0);
  return full * layer_token_bytes(config, dtype);
}

std::vector<KvGroupPlan> plan_kv_groups(const ModelConfig& config, const KvCacheOptions& o) {
  std::vector<KvGroupPlan> groups;
  for (int layer = 0; layer < static_cast<int>(config.layers); ++layer) {
    const int window = config.window.empty() ? 0 : config.window[static_cast<size_t>(layer)];
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const KvGroupPlan& g) { return g.window == window; });
    if (group == groups.end()) group = groups.insert(groups.end(), {window, {}, 0, 0});
    group->layers.push_back(layer);
    group->block_bytes += layer_token_bytes(config, o.dtype) * o.block_size;
  }
  // Every group gets the same number of blocks, except that a window group stops at its cap and
  // leaves the rest to the others.
  int64_t memory = o.memory_bytes, bytes = 0;
  for (const KvGroupPlan& g : groups) bytes += g.block_bytes;
  std::vector<KvGroupPlan*> order;
  for (KvGroupPlan& g : groups) order.push_back(&g);
  const auto cap = [&](const KvGroupPlan& g) {
    return g.window > 0 && groups.size() > 1 ? window_blocks_cap(g, o) : INT64_MAX;
  };
  std::sort(order.begin(), order.end(),
            [&](const KvGroupPlan* a, const KvGroupPlan* b) { return cap(*a) < cap(*b); });
  for (KvGroupPlan* g : order) {
    g->num_blocks = std::min(memory / bytes, cap(*g));
    memory -= g->num_blocks * g->block_bytes;
    bytes -= g->block_bytes;
  }
  return groups;
}

StatusOr<KvCache> KvCache::create(const ModelConfig& config, const KvCacheOptions& o) {
  KvCache cache;
  cache.groups_ = plan_kv_groups(config, o);
  for (const KvGroupPlan& g : cache.groups_) {
    cache.bytes_ += g.num_blocks * g.block_bytes;
    if (g.num_blocks < 1)
      return absl::ResourceExhaustedError(
          "the KV cache memory of " + std::to_string(o.memory_bytes) +
          " bytes does not hold one block; raise --kv-cache-memory-bytes");
  }
  cache.memory_ = AnonymousMemory::map(static_cast<size_t>(cache.bytes_));
  if (!cache.memory_)
    return absl::ResourceExhaustedError("the KV cache of " + std::to_string(cache.bytes_) +
                                        " bytes cannot be mapped; lower --kv-cache-memory-bytes");

  cache.bindings_.resize(static_cast<size_t>(config.layers));
  char* base = cache.memory_.data();
  for (size_t g = 0; g < cache.groups_.size(); ++g) {
    const KvGroupPlan& group = cache.groups_[g];
    const int64_t layer_bytes = group.block_bytes / static_cast<int64_t>(group.layers.size());
    for (size_t i = 0; i < group.layers.size(); ++i) {
      KvBinding& binding = cache.bindings_[static_cast<size_t>(group.layers[i])];
      binding.group = static_cast<int>(g);
      binding.layer = {base + static_cast<int64_t>(i) * layer_bytes,
                       group.block_bytes,
                       o.dtype,
                       o.block_size,
                       static_cast<int>(config.kv_heads),
                       static_cast<int>(config.head_dim),
                       group.window};
    }
    base += group.num_blocks * group.block_bytes;
  }
  return cache;
}

std::vector<KvGroupInfo> KvCache::group_infos() const {
  std::vector<KvGroupInfo> infos;
  for (const KvGroupPlan& g : groups_) infos.push_back({g.window, g.num_blocks});
  return infos;
}

}  // namespace millrace
