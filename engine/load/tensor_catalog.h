// TensorCatalog: every tensor of a checkpoint, found by its Hugging Face name whatever the files
// call it. Owned by the checkpoint, whose mapped files outlive it. Immutable; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/status.h"
#include "engine/load/stored_tensor.h"

namespace millrace {

enum class TensorNaming : uint8_t { hugging_face, gguf };

class TensorCatalog {
 public:
  // `files` are names for errors; StoredTensor::file_idx refers to them. INVALID_ARGUMENT if a name
  // occurs twice. `interleaved_qk`: the rows of Q and K are permuted for rotary pairs (2i, 2i + 1).
  static StatusOr<TensorCatalog> make(std::vector<StoredTensor> tensors,
                                      std::vector<std::string> files, TensorNaming naming,
                                      bool interleaved_qk);

  std::span<const StoredTensor> tensors() const { return tensors_; }
  const std::string& file(const StoredTensor& tensor) const {
    return files_[static_cast<size_t>(tensor.file_idx)];
  }
  const std::vector<std::string>& files() const { return files_; }
  // Null if there is none.
  const StoredTensor* find(std::string_view name) const;
  // What the files would call the tensor.
  std::string stored_name(std::string_view name) const;
  bool interleaved_qk() const { return interleaved_qk_; }
  // Tensors that some exporters add and that no forward pass reads.
  bool is_redundant(const StoredTensor& tensor) const;

 private:
  std::vector<StoredTensor> tensors_;
  std::vector<std::string> files_;
  TensorNaming naming_ = TensorNaming::hugging_face;
  bool interleaved_qk_ = false;
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace millrace
