// A checkpoint that is a folder: safetensors (one file, or those that an index lists) with
// config.json and the tokenizer's files.
#include <map>

#include "engine/load/checkpoint.h"
#include "engine/load/hf_config.h"
#include "engine/load/hf_text.h"
#include "engine/load/json_fields.h"
#include "engine/load/safetensors.h"
#include "engine/text/tokenizer.h"

namespace millrace {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxIndexBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxTokenizerBytes = uint64_t{512} << 20;

// The text of a file, or empty if there is none.
StatusOr<std::string> optional_text(const std::string& path, uint64_t max_bytes) {
  StatusOr<std::string> text = read_text_file(path, max_bytes);
  if (!text.ok() && absl::IsNotFound(text.status())) return std::string();
  return text;
}

class HfCheckpoint final : public MappedCheckpoint {
 public:
  explicit HfCheckpoint(CheckpointParts parts) : MappedCheckpoint(std::move(parts)) {}
  CheckpointFormat format() const override { return CheckpointFormat::safetensors; }
  StatusOr<std::unique_ptr<Tokenizer>> load_tokenizer() const override;
};

StatusOr<std::unique_ptr<Tokenizer>> HfCheckpoint::load_tokenizer() const {
  MR_ASSIGN_OR_RETURN(const std::string config,
                      optional_text(path() + "/tokenizer_config.json", kMaxConfigBytes));
  MR_ASSIGN_OR_RETURN(const std::string json,
                      optional_text(path() + "/tokenizer.json", kMaxTokenizerBytes));
  if (!json.empty()) return Tokenizer::from_tokenizer_json(json, config);
  MR_ASSIGN_OR_RETURN(const std::string proto,
                      optional_text(path() + "/tokenizer.model", kMaxTokenizerBytes));
  if (!proto.empty()) return Tokenizer::from_sentencepiece(proto, config);
  MR_ASSIGN_OR_RETURN(const std::string tekken,
                      optional_text(path() + "/tekken.json", kMaxTokenizerBytes));
  if (!tekken.empty()) return Tokenizer::from_tekken_json(tekken);
  return absl::InvalidArgumentError(
      path() + " has no tokenizer: tokenizer.json, tokenizer.model or tekken.json is needed.");
}

struct TensorFiles {
  std::vector<MappedFile> maps;
  std::vector<std::string> names;
  std::vector<StoredTensor> tensors;
};

Status open_single(const std::string& path, TensorFiles& files) {
  MR_ASSIGN_OR_RETURN(MappedFile map, MappedFile::open(path));
  MR_ASSIGN_OR_RETURN(files.tensors, parse_safetensors(map.bytes(), path));
  files.names.push_back(path);
  files.maps.push_back(std::move(map));
  return absl::OkStatus();
}

// The index is the allow-list: each (tensor, file) that it names must exist, and what it does not
// name is ignored.
Status open_shards(const std::string& folder, const std::string& index_path,
                   const std::string& index_text, TensorFiles& files) {
  MR_ASSIGN_OR_RETURN(const ShardIndex index, parse_shard_index(index_text, index_path));
  std::vector<std::map<std::string, StoredTensor>> shards;
  for (const std::string& file : index.files) {
    const std::string path = folder + "/" + file;
    StatusOr<MappedFile> map = MappedFile::open(path);
    if (!map.ok()) {
      return absl::Status(map.status().code(),
                          index_path + " names " + file + ", but " + status_message(map.status()));
    }
    MR_ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors, parse_safetensors(map->bytes(), path));
    std::map<std::string, StoredTensor> by_name;
    for (StoredTensor& tensor : tensors) {
      std::string name = tensor.name;
      by_name.emplace(std::move(name), std::move(tensor));
    }
    shards.push_back(std::move(by_name));
    files.names.push_back(path);
    files.maps.push_back(*std::move(map));
  }
  for (const auto& [name, file_idx] : index.tensors) {
    const auto it = shards[file_idx].find(name);
    if (it == shards[file_idx].end()) {
      return absl::InvalidArgumentError(index_path + ": tensor \"" + name + "\" is not in " +
                                        index.files[file_idx] + ", where the index places it.");
    }
    files.tensors.push_back(it->second);
    files.tensors.back().file_idx = static_cast<int>(file_idx);
  }
  return absl::OkStatus();
}

StatusOr<TensorFiles> open_tensor_files(const std::string& folder) {
  TensorFiles files;
  const std::string index_path = folder + "/model.safetensors.index.json";
  StatusOr<std::string> index = read_text_file(index_path, kMaxIndexBytes);
  if (index.ok()) {
    MR_RETURN_IF_ERROR(open_shards(folder, index_path, *index, files));
    return files;
  }
  if (!absl::IsNotFound(index.status())) return index.status();
  const Status single = open_single(folder + "/model.safetensors", files);
  if (absl::IsNotFound(single)) {
    return absl::NotFoundError(folder +
                               " holds neither model.safetensors.index.json nor "
                               "model.safetensors.");
  }
  MR_RETURN_IF_ERROR(single);
  return files;
}

StatusOr<ModelConfig> read_config(const std::string& folder, const std::string& generation_text,
                                  size_t num_tensors) {
  const std::string path = folder + "/config.json", generation = folder + "/generation_config.json";
  MR_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxConfigBytes));
  MR_ASSIGN_OR_RETURN(const nlohmann::json config, parse_json_object(text, path));
  nlohmann::json generation_json = nlohmann::json::object();
  if (!generation_text.empty()) {
    MR_ASSIGN_OR_RETURN(generation_json, parse_json_object(generation_text, generation));
  }
  return hf_model_config(
      {config, path, generation_json, generation, static_cast<int64_t>(num_tensors)});
}

}  // namespace

StatusOr<std::unique_ptr<Checkpoint>> open_hf_folder(const std::string& path) {
  CheckpointParts parts;
  parts.path = path;
  while (parts.path.size() > 1 && parts.path.ends_with('/')) parts.path.pop_back();
  parts.model_name = name_from_path(parts.path, "");
  MR_ASSIGN_OR_RETURN(TensorFiles files, open_tensor_files(parts.path));
  MR_ASSIGN_OR_RETURN(parts.generation_config,
                      optional_text(parts.path + "/generation_config.json", kMaxConfigBytes));
  MR_ASSIGN_OR_RETURN(parts.config,
                      read_config(parts.path, parts.generation_config, files.tensors.size()));
  MR_ASSIGN_OR_RETURN(parts.catalog,
                      TensorCatalog::make(std::move(files.tensors), std::move(files.names),
                                          TensorNaming::hugging_face, /*interleaved_qk=*/false));
  parts.files = std::move(files.maps);
  MR_ASSIGN_OR_RETURN(const std::string tokenizer_config,
                      optional_text(parts.path + "/tokenizer_config.json", kMaxConfigBytes));
  MR_ASSIGN_OR_RETURN(parts.chat_template, hf_chat_template(parts.path, tokenizer_config));
  MR_ASSIGN_OR_RETURN(parts.special_token_texts,
                      hf_special_token_texts(parts.path, tokenizer_config));
  return std::make_unique<HfCheckpoint>(std::move(parts));
}

}  // namespace millrace
