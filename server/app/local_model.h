// LocalModel: a checkpoint opened, converted and ready to run in this process, with its tokenizer,
// template and the executor that computes it. Shared by serve, chat, batch and bench. load() blocks
// for as long as loading takes; afterwards the object is immutable but for start_engine().
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/engine.h"
#include "engine/load/load.h"
#include "server/api/limits.h"
#include "server/app/generation.h"

namespace CLI {
class App;
}

namespace millrace::app {

struct LocalModelOptions {
  std::string model;                            // a GGUF file or a folder with safetensors
  std::vector<std::string> served_model_names;  // empty: the checkpoint's own name
  std::string chat_template_file;               // replaces the checkpoint's
  int64_t max_model_len = 0;                    // 0: what the checkpoint was made for
  int max_num_seqs = 64;
  int max_num_batched_tokens = 512;
  double itl_target_ms = 0.0;  // 0: chosen from what steps cost
  int block_size = 16;
  bool enable_prefix_caching = true;
  int64_t kv_cache_memory_bytes = 0;    // 0: chosen from the free memory
  std::string dtype = "auto";           // auto, float32, bfloat16
  std::string quantization = "none";    // none, w8a8, int4
  std::string kv_cache_dtype = "auto";  // auto (bfloat16), bfloat16, float32
  std::string cpu_level;                // empty: the best that this CPU has
  int threads = 0;                      // 0: the CPUs that this process may use
  int64_t max_num_queued_requests = 4096;
  int64_t max_num_queued_tokens = 4'000'000;
  bool allow_request_chat_template = false;
  api::Limits limits;
};

// The options above as flags (vLLM's names), on any subcommand; MODEL is the positional argument.
void add_local_model_options(CLI::App& app, LocalModelOptions& options);

// Bytes of each part of memory and what they allow.
struct MemoryPlan {
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes_per_token = 0;
  uint64_t kv_bytes = 0;  // of the whole pool
  int64_t kv_blocks = 0;
  int64_t block_size = 0;
  int64_t max_model_len = 0;
  uint64_t activation_bytes = 0;
  uint64_t available_bytes = 0;  // of memory, before any of it was taken
  int64_t tokens_in_pool() const { return kv_blocks * block_size; }
};

class LocalModel {
 public:
  static StatusOr<std::unique_ptr<LocalModel>> load(const LocalModelOptions& options,
                                                    const LoadProgress& progress);
  ~LocalModel();

  // Makes the engine (its thread starts). Once; the engine must end before this object.
  StatusOr<std::unique_ptr<Engine>> start_engine(EventSink sink);

  const GenerationContext& context() const;
  const Checkpoint& checkpoint() const;
  const MemoryPlan& memory() const;

 private:
  struct Impl;
  explicit LocalModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What load() would take, from headers alone.
StatusOr<MemoryPlan> plan_memory(const LocalModelOptions& options, const Checkpoint& checkpoint);

}  // namespace millrace::app
