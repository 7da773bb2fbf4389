// The CPU executor: one device thread that takes part in a compute pool, two step slots.
#pragma once

#include <memory>

#include "engine/exec/executor.h"
#include "engine/exec/kv_cache.h"
#include "kernels/core/context.h"
#include "models/model.h"

namespace millrace {

struct CpuExecutorOptions {
  int threads = 0;  // compute threads, the device thread included; 0: available_cpus()
  CpuLevel level = CpuLevel::reference;
  KvCacheOptions kv;
  // Ids that must never be drawn: holes of the vocabulary and rows beyond it; ascending.
  std::vector<Token> invalid_tokens;
};

// `model` has its weights and outlives the executor.
StatusOr<std::unique_ptr<Executor>> make_cpu_executor(const Model& model, const ModelConfig& config,
                                                      CpuExecutorOptions options);

// Bytes of the step's temporaries (activations and logits) for `plan` and for sizing.
int64_t activation_bytes(const Model& model, const ModelConfig& config,
                         const CpuExecutorOptions& options);

}  // namespace millrace
