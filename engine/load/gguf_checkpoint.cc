// A checkpoint that is one GGUF file, or several with names ending in -00001-of-0000N.gguf.
#include <cstdio>
#include <cstdlib>

#include "engine/load/checkpoint.h"
#include "engine/load/gguf.h"
#include "engine/load/gguf_config.h"
#include "engine/text/tokenizer.h"

namespace millrace {
namespace {

constexpr int64_t kMaxSplits = 1024;

class GgufCheckpoint final : public MappedCheckpoint {
 public:
  GgufCheckpoint(CheckpointParts parts, GgufFile metadata)
      : MappedCheckpoint(std::move(parts)), metadata_(std::move(metadata)) {}
  CheckpointFormat format() const override { return CheckpointFormat::gguf; }
  StatusOr<std::unique_ptr<Tokenizer>> load_tokenizer() const override {
    MR_ASSIGN_OR_RETURN(GgufVocabulary vocabulary, gguf_vocabulary(metadata_));
    return Tokenizer::from_gguf(std::move(vocabulary));
  }

 private:
  GgufFile metadata_;
};

// "-00001-of-00003.gguf"
std::string split_suffix(int64_t number, int64_t count) {
  char text[64];
  std::snprintf(text, sizeof text, "-%05lld-of-%05lld.gguf", static_cast<long long>(number),
                static_cast<long long>(count));
  return text;
}

struct OpenFiles {
  std::vector<MappedFile> maps;
  std::vector<GgufFile> headers;
};

Status open_one(const std::string& path, OpenFiles& files) {
  MR_ASSIGN_OR_RETURN(MappedFile map, MappedFile::open(path));
  MR_ASSIGN_OR_RETURN(GgufFile header, GgufFile::parse(map.bytes(), path));
  files.maps.push_back(std::move(map));
  files.headers.push_back(std::move(header));
  return absl::OkStatus();
}

// Opens the splits after the first, whose metadata says how many there are.
Status open_splits(const std::string& path, OpenFiles& files) {
  MR_ASSIGN_OR_RETURN(const auto count, files.headers[0].integer("split.count"));
  if (!count || *count == 1 || *count == 0) return absl::OkStatus();
  if (*count < 0 || *count > kMaxSplits) {
    return absl::InvalidArgumentError(path + ": key \"split.count\" is " + std::to_string(*count) +
                                      "; at most " + std::to_string(kMaxSplits) +
                                      " splits are supported.");
  }
  const std::string suffix = split_suffix(1, *count);
  if (!path.ends_with(suffix)) {
    return absl::InvalidArgumentError(path + " is one of " + std::to_string(*count) +
                                      " splits; open the first, whose name ends in " + suffix +
                                      ".");
  }
  const std::string stem = path.substr(0, path.size() - suffix.size());
  uint64_t tensors = files.headers[0].tensors().size();
  for (int64_t i = 2; i <= *count; ++i) {
    MR_RETURN_IF_ERROR(open_one(stem + split_suffix(i, *count), files));
    const GgufFile& header = files.headers.back();
    MR_ASSIGN_OR_RETURN(const auto number, header.integer("split.no"));
    if (number.value_or(-1) != i - 1) {
      return absl::InvalidArgumentError(header.name() + ": key \"split.no\" must be " +
                                        std::to_string(i - 1) + ".");
    }
    tensors += header.tensors().size();
  }
  MR_ASSIGN_OR_RETURN(const auto declared, files.headers[0].integer("split.tensors.count"));
  if (declared && static_cast<uint64_t>(*declared) != tensors) {
    return absl::InvalidArgumentError(path + ": key \"split.tensors.count\" is " +
                                      std::to_string(*declared) + ", but the splits hold " +
                                      std::to_string(tensors) + " tensors.");
  }
  return absl::OkStatus();
}

StatusOr<TensorCatalog> make_catalog(const OpenFiles& files) {
  std::vector<StoredTensor> tensors;
  std::vector<std::string> names;
  for (size_t i = 0; i < files.headers.size(); ++i) {
    names.push_back(files.headers[i].name());
    for (StoredTensor tensor : files.headers[i].tensors()) {
      tensor.file_idx = static_cast<int>(i);
      tensors.push_back(std::move(tensor));
    }
  }
  return TensorCatalog::make(std::move(tensors), std::move(names), TensorNaming::gguf,
                             gguf_interleaves_qk(files.headers[0]));
}

// Texts of the special tokens that templates may print.
StatusOr<std::vector<std::pair<std::string, std::string>>> read_special_texts(
    const GgufFile& file) {
  std::vector<std::pair<std::string, std::string>> texts;
  MR_ASSIGN_OR_RETURN(const auto tokens, file.strings("tokenizer.ggml.tokens"));
  for (const auto& [name, key] : {std::pair{"bos_token", "tokenizer.ggml.bos_token_id"},
                                  std::pair{"eos_token", "tokenizer.ggml.eos_token_id"},
                                  std::pair{"unk_token", "tokenizer.ggml.unknown_token_id"},
                                  std::pair{"pad_token", "tokenizer.ggml.padding_token_id"}}) {
    MR_ASSIGN_OR_RETURN(const auto id, file.integer(key));
    if (id && *id >= 0 && *id < static_cast<int64_t>(tokens.size())) {
      texts.emplace_back(name, std::string(tokens[static_cast<size_t>(*id)]));
    }
  }
  return texts;
}

}  // namespace

StatusOr<std::unique_ptr<Checkpoint>> open_gguf(const std::string& path) {
  OpenFiles files;
  MR_RETURN_IF_ERROR(open_one(path, files));
  MR_RETURN_IF_ERROR(open_splits(path, files));
  const GgufFile& header = files.headers[0];
  CheckpointParts parts;
  parts.path = path;
  MR_ASSIGN_OR_RETURN(parts.catalog, make_catalog(files));
  MR_ASSIGN_OR_RETURN(parts.config, gguf_model_config(header, parts.catalog));
  MR_ASSIGN_OR_RETURN(const auto chat_template, header.string("tokenizer.chat_template"));
  parts.chat_template = std::string(chat_template.value_or(""));
  MR_ASSIGN_OR_RETURN(parts.special_token_texts, read_special_texts(header));
  const std::string splits = split_suffix(1, static_cast<int64_t>(files.headers.size()));
  parts.model_name = name_from_path(path, path.ends_with(splits) ? splits : ".gguf");
  parts.files = std::move(files.maps);
  return std::make_unique<GgufCheckpoint>(std::move(parts), std::move(files.headers[0]));
}

}  // namespace millrace
