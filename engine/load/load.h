// Loading a checkpoint: a GGUF file (or the first of its splits), or a folder with safetensors and
// config.json. open() reads only headers and metadata and refuses what is unsupported with one
// sentence, before any memory is spent; load_weights() converts tensors into the internal layouts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/load/weight_store.h"
#include "models/config.h"
#include "models/model.h"

namespace millrace {

class TensorCatalog;
class Tokenizer;

enum class CheckpointFormat : uint8_t { gguf, safetensors };

struct TensorInfo {
  std::string name;            // as in the file
  std::string type;            // "F32", "BF16", "Q4_1", ...
  std::vector<int64_t> shape;  // row-major, outermost first
  uint64_t bytes = 0;
  std::string file;
};

// What the tensors become. `automatic` keeps the precision class that the file has: F32/F16/BF16 ->
// bf16, 4-bit formats -> int4, the others -> int8. `w8a8` and `int4` quantise anew, whatever the
// file has: the decoder layers to int8 per channel or to int4 in groups with minima, embedding and
// output head to int8 in groups.
enum class WeightType : uint8_t { automatic, float32, bfloat16, w8a8, int4 };

// Called now and then from the loading thread with bytes done and in all.
using LoadProgress = std::function<void(uint64_t done, uint64_t total)>;

class Checkpoint {
 public:
  static StatusOr<std::unique_ptr<Checkpoint>> open(const std::string& path);
  virtual ~Checkpoint() = default;

  virtual CheckpointFormat format() const = 0;
  virtual const std::string& path() const = 0;
  virtual const ModelConfig& config() const = 0;
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  virtual std::string model_name() const = 0;            // for --served-model-name's default
  virtual const std::string& chat_template() const = 0;  // empty: none
  // Sampling defaults that the checkpoint carries (generation_config.json), as JSON text or empty.
  virtual const std::string& generation_config() const = 0;

  virtual StatusOr<std::unique_ptr<Tokenizer>> load_tokenizer() const = 0;
  // Special token texts that templates use ("bos_token" -> "<s>"), from tokenizer_config or GGUF.
  virtual std::vector<std::pair<std::string, std::string>> special_token_texts() const = 0;

  // Binds every weight of `model` into memory owned by `store`. Uses all of `threads`.
  virtual Status load_weights(Model& model, const TensorParallel& tp, WeightType type, int threads,
                              WeightStore& store, const LoadProgress& progress) = 0;

 protected:
  // Null if the checkpoint has no tensors of its own.
  virtual const TensorCatalog* catalog() const { return nullptr; }
  friend StatusOr<uint64_t> planned_weight_bytes(const Checkpoint& checkpoint,
                                                 const TensorParallel& tp, WeightType type);
  friend Status bind_planned_shapes(const Checkpoint& checkpoint, Model& model,
                                    const TensorParallel& tp, WeightType type);
};

// Bytes that load_weights would need, from shapes alone.
StatusOr<uint64_t> planned_weight_bytes(const Checkpoint& checkpoint, const TensorParallel& tp,
                                        WeightType type);

// Gives every Linear of `model` its shape and format but no memory: enough for a dry run.
Status bind_planned_shapes(const Checkpoint& checkpoint, Model& model, const TensorParallel& tp,
                           WeightType type);

// Random weights of a config's shape (for benchmarks and tests of geometry): reproducible by seed.
void bind_random_weights(Model& model, const TensorParallel& tp, WeightFormat format, uint64_t seed,
                         WeightStore& store);

}  // namespace millrace
