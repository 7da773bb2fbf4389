// What both kinds of checkpoint share: the mapped files, the catalog of tensors, and loading.
// Internal to engine/load.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/load/load.h"
#include "engine/load/mapped_file.h"
#include "engine/load/tensor_catalog.h"

namespace millrace {

// Everything that opening has found out.
struct CheckpointParts {
  std::string path;
  std::string model_name;
  std::vector<MappedFile> files;
  TensorCatalog catalog;
  ModelConfig config;
  std::string chat_template;
  std::string generation_config;
  std::vector<std::pair<std::string, std::string>> special_token_texts;
};

class MappedCheckpoint : public Checkpoint {
 public:
  explicit MappedCheckpoint(CheckpointParts parts);

  const std::string& path() const override { return parts_.path; }
  const ModelConfig& config() const override { return parts_.config; }
  const std::vector<TensorInfo>& tensors() const override { return tensor_infos_; }
  std::string model_name() const override { return parts_.model_name; }
  const std::string& chat_template() const override { return parts_.chat_template; }
  const std::string& generation_config() const override { return parts_.generation_config; }
  std::vector<std::pair<std::string, std::string>> special_token_texts() const override {
    return parts_.special_token_texts;
  }
  Status load_weights(Model& model, const TensorParallel& tp, WeightType type, int threads,
                      WeightStore& store, const LoadProgress& progress) override;

 protected:
  const TensorCatalog* catalog() const override { return &parts_.catalog; }

 private:
  CheckpointParts parts_;
  std::vector<TensorInfo> tensor_infos_;
};

// The file name without folders and without `suffix`.
std::string name_from_path(const std::string& path, std::string_view suffix);

StatusOr<std::unique_ptr<Checkpoint>> open_gguf(const std::string& path);
StatusOr<std::unique_ptr<Checkpoint>> open_hf_folder(const std::string& path);

}  // namespace millrace
