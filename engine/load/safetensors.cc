#include "engine/load/safetensors.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "engine/load/json_fields.h"

namespace millrace {
namespace {

constexpr uint64_t kMaxHeaderBytes = uint64_t{100} << 20;
constexpr size_t kMaxDimensions = 4;
constexpr size_t kMaxShards = 4096;

Status header_error(const std::string& file, const std::string& what) {
  return absl::InvalidArgumentError(file + ": " + what + ".");
}

// Remembers the first key that occurs twice in the header's top level, which JSON parsers drop
// silently.
class DuplicateKeys {
 public:
  bool operator()(int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::key && depth == 1) {
      const auto key = parsed.get<std::string>();
      if (!seen_.insert({key, true}).second && duplicate_.empty()) duplicate_ = key;
    }
    return true;
  }
  const std::string& duplicate() const { return duplicate_; }

 private:
  std::map<std::string, bool> seen_;
  std::string duplicate_;
};

StatusOr<StoredType> read_type(const nlohmann::json& entry, const std::string& place) {
  const auto it = entry.find("dtype");
  if (it == entry.end() || !it->is_string()) {
    return header_error(place, "\"dtype\" must be a string");
  }
  const auto type = it->get<std::string>();
  if (type == "F32") return StoredType::f32;
  if (type == "F16") return StoredType::f16;
  if (type == "BF16") return StoredType::bf16;
  return header_error(place, "type " + type + " is not supported; F32, F16 and BF16 are");
}

bool is_size(const nlohmann::json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{1} << 62;
}

// The shape, whose number of elements is at most `limit`.
StatusOr<std::vector<int64_t>> read_shape(const nlohmann::json& entry, const std::string& place,
                                          uint64_t limit) {
  const auto it = entry.find("shape");
  if (it == entry.end() || !it->is_array() || it->size() > kMaxDimensions || it->empty()) {
    return header_error(place, "\"shape\" must be an array of 1 to 4 sizes");
  }
  std::vector<int64_t> shape;
  uint64_t elements = 1;
  for (const nlohmann::json& size : *it) {
    if (!is_size(size) || size.get<uint64_t>() == 0 || size.get<uint64_t>() > limit / elements) {
      return header_error(place, "\"shape\" " + it->dump() +
                                     " has a size that is zero or more than the file can hold");
    }
    elements *= size.get<uint64_t>();
    shape.push_back(static_cast<int64_t>(size.get<uint64_t>()));
  }
  return shape;
}

StatusOr<StoredTensor> read_tensor(const std::string& name, const nlohmann::json& entry,
                                   std::span<const uint8_t> data, const std::string& file) {
  const std::string place = file + ": tensor \"" + name + "\"";
  if (!entry.is_object()) return header_error(place, "its entry must be an object");
  StoredTensor tensor;
  tensor.name = name;
  MR_ASSIGN_OR_RETURN(tensor.type, read_type(entry, place));
  const auto element_bytes = static_cast<uint64_t>(stored_type_info(tensor.type).bytes);
  MR_ASSIGN_OR_RETURN(tensor.shape, read_shape(entry, place, data.size() / element_bytes));
  tensor.bytes = static_cast<uint64_t>(tensor.rows() * tensor.columns()) * element_bytes;
  const auto it = entry.find("data_offsets");
  if (it == entry.end() || !it->is_array() || it->size() != 2 || !is_size((*it)[0]) ||
      !is_size((*it)[1])) {
    return header_error(place, "\"data_offsets\" must be two byte offsets");
  }
  const uint64_t begin = (*it)[0].get<uint64_t>(), end = (*it)[1].get<uint64_t>();
  if (begin > end || end > data.size()) {
    return header_error(place, "its bytes " + std::to_string(begin) + " to " + std::to_string(end) +
                                   " lie outside the " + std::to_string(data.size()) +
                                   " bytes of data: the file is truncated or damaged");
  }
  if (end - begin != tensor.bytes) {
    return header_error(place, "shape " + shape_text(tensor.shape) + " of " +
                                   stored_type_info(tensor.type).name + " needs " +
                                   std::to_string(tensor.bytes) + " bytes, but its range has " +
                                   std::to_string(end - begin));
  }
  tensor.data = data.data() + begin;
  return tensor;
}

// Ranges must follow one another from the first byte of the data to the last.
Status check_cover(const std::vector<StoredTensor>& tensors, std::span<const uint8_t> data,
                   const std::string& file) {
  const uint8_t* at = data.data();
  for (const StoredTensor& tensor : tensors) {
    if (tensor.data != at) {
      return header_error(
          file + ": tensor \"" + tensor.name + "\"",
          std::string("its bytes ") + (tensor.data < at ? "overlap those of another tensor"
                                                        : "are preceded by bytes of no tensor"));
    }
    at += tensor.bytes;
  }
  const auto rest = static_cast<uint64_t>(data.data() + data.size() - at);
  if (rest == 0) return absl::OkStatus();
  return header_error(file, std::to_string(rest) + " bytes after the last tensor belong to none");
}

}  // namespace

StatusOr<std::vector<StoredTensor>> parse_safetensors(std::span<const uint8_t> bytes,
                                                      const std::string& name) {
  uint64_t header_size = 0;
  if (bytes.size() < sizeof header_size) {
    return header_error(name, "the file has " + std::to_string(bytes.size()) +
                                  " bytes, fewer than the 8 of a header length");
  }
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  const uint64_t limit = std::min(kMaxHeaderBytes, bytes.size() - sizeof header_size);
  if (header_size > limit) {
    return header_error(name, "the header length at byte 0 is " + std::to_string(header_size) +
                                  ", where at most " + std::to_string(limit) + " are possible");
  }
  const auto text = bytes.subspan(sizeof header_size, header_size);
  const auto data = bytes.subspan(sizeof header_size + header_size);
  DuplicateKeys keys;
  const nlohmann::json header =
      nlohmann::json::parse(text.begin(), text.end(), std::ref(keys), /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object()) {
    return header_error(name, "the header at byte 8 is not a JSON object");
  }
  if (!keys.duplicate().empty()) {
    return header_error(name, "tensor \"" + keys.duplicate() + "\" occurs twice");
  }
  std::vector<StoredTensor> tensors;
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") continue;
    MR_ASSIGN_OR_RETURN(StoredTensor tensor, read_tensor(key, entry, data, name));
    tensors.push_back(std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.data < b.data; });
  MR_RETURN_IF_ERROR(check_cover(tensors, data, name));
  return tensors;
}

StatusOr<ShardIndex> parse_shard_index(const std::string& text, const std::string& name) {
  MR_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json_object(text, name));
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object() || map->empty()) {
    return header_error(name, "field \"weight_map\" must be an object of tensors and file names");
  }
  ShardIndex index;
  std::map<std::string, size_t> numbers;
  for (const auto& [tensor, file] : map->items()) {
    const bool plain = file.is_string() && !file.get_ref<const std::string&>().empty() &&
                       file.get_ref<const std::string&>().find('/') == std::string::npos;
    if (!plain) {
      return header_error(name, "tensor \"" + tensor +
                                    "\" must be mapped to the name of a file in the same folder");
    }
    const auto [it, added] = numbers.emplace(file.get<std::string>(), index.files.size());
    if (added) index.files.push_back(it->first);
    if (index.files.size() > kMaxShards) {
      return header_error(name, "it names more than " + std::to_string(kMaxShards) + " files");
    }
    index.tensors.emplace_back(tensor, it->second);
  }
  return index;
}

}  // namespace millrace
