// KvCache: the memory of the paged key/value cache on the CPU. Layers of equal lifetime (full
// attention, or one sliding window size) form a group with its own blocks. Pages of the operating
// system are touched only when a block is first written. Owned by the executor.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/anonymous_memory.h"
#include "engine/base/status.h"
#include "engine/exec/executor.h"
#include "models/config.h"
#include "models/model.h"

namespace millrace {

struct KvCacheOptions {
  DType dtype = DType::bf16;  // bf16 or f32
  int block_size = 16;        // tokens; a multiple of 16
  int64_t memory_bytes = 0;   // for all groups
  int max_num_seqs = 0;
  int max_num_batched_tokens = 0;
  int64_t max_model_len = 0;
};

// How the memory divides among the groups; pure, so `plan` can print it before anything is spent.
struct KvGroupPlan {
  int window = 0;
  std::vector<int> layers;
  int64_t block_bytes = 0;  // of all its layers
  int64_t num_blocks = 0;
};
std::vector<KvGroupPlan> plan_kv_groups(const ModelConfig& config, const KvCacheOptions& options);
// Bytes that one more token of a long sequence costs in the full-attention group.
int64_t kv_bytes_per_token(const ModelConfig& config, DType dtype);

class KvCache {
 public:
  // RESOURCE_EXHAUSTED if the memory cannot hold one sequence of a single block.
  static StatusOr<KvCache> create(const ModelConfig& config, const KvCacheOptions& options);

  std::vector<KvGroupInfo> group_infos() const;
  const std::vector<KvBinding>& bindings() const { return bindings_; }  // one per layer
  int64_t bytes() const { return bytes_; }

 private:
  KvCache() = default;
  std::vector<KvGroupPlan> groups_;
  std::vector<KvBinding> bindings_;
  AnonymousMemory memory_;
  int64_t bytes_ = 0;
};

}  // namespace millrace
