// Layout: "GGUF", u32 version, u64 tensors, u64 key-values; the key-values (string key, u32 type,
// value); the tensor table (string name, u32 dimensions, u64 each innermost first, u32 type, u64
// offset); padding to the alignment; data. Strings are a u64 length and bytes.
#include "engine/load/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <unordered_set>

namespace millrace {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxNameBytes = 1024;
constexpr uint32_t kMaxDimensions = 4;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
// The shortest possible entries, which bound the counts by the file's size.
constexpr uint64_t kMinValueBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;

}  // namespace

size_t gguf_type_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean: return 1;
    case GgufType::u16:
    case GgufType::i16: return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32: return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64: return 8;
    case GgufType::string:
    case GgufType::array: break;
  }
  return 0;
}

const char* gguf_type_name(GgufType type) {
  switch (type) {
    case GgufType::u8: return "uint8";
    case GgufType::i8: return "int8";
    case GgufType::u16: return "uint16";
    case GgufType::i16: return "int16";
    case GgufType::u32: return "uint32";
    case GgufType::i32: return "int32";
    case GgufType::f32: return "float32";
    case GgufType::boolean: return "bool";
    case GgufType::string: return "string";
    case GgufType::array: return "array";
    case GgufType::u64: return "uint64";
    case GgufType::i64: return "int64";
    case GgufType::f64: return "float64";
  }
  return "?";
}

Status GgufParser::error_at(uint64_t offset, const std::string& what) const {
  return absl::InvalidArgumentError(file_.name_ + ": byte " + std::to_string(offset) + ": " + what +
                                    ".");
}

template <class T>
StatusOr<T> GgufParser::read(const char* what) {
  if (left() < sizeof(T)) {
    return error(std::string("the file ends where ") + what + " should be");
  }
  T value;
  std::memcpy(&value, bytes_.data() + at_, sizeof(T));
  at_ += sizeof(T);
  return value;
}

StatusOr<std::string_view> GgufParser::read_string(const char* what, uint64_t max_bytes) {
  const uint64_t begin = at_;
  MR_ASSIGN_OR_RETURN(const uint64_t size, read<uint64_t>(what));
  const uint64_t limit = std::min(left(), max_bytes);
  if (size > limit) {
    return error_at(begin, std::string(what) + " has " + std::to_string(size) +
                               " bytes, where at most " + std::to_string(limit) + " are possible");
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
  at_ += size;
  return text;
}

StatusOr<GgufFile> GgufParser::run() {
  uint64_t num_tensors = 0, num_values = 0;
  MR_RETURN_IF_ERROR(read_header(&num_tensors, &num_values));
  for (uint64_t i = 0; i < num_values; ++i) MR_RETURN_IF_ERROR(read_value());
  for (uint64_t i = 0; i < num_tensors; ++i) MR_RETURN_IF_ERROR(read_tensor());
  MR_RETURN_IF_ERROR(place_tensors());
  MR_RETURN_IF_ERROR(check_overlaps());
  return std::move(file_);
}

Status GgufParser::read_header(uint64_t* num_tensors, uint64_t* num_values) {
  MR_ASSIGN_OR_RETURN(const uint32_t magic, read<uint32_t>("the magic number"));
  if (magic != kMagic) return error_at(0, "this is not a GGUF file (no \"GGUF\" magic)");
  MR_ASSIGN_OR_RETURN(file_.version_, read<uint32_t>("the version"));
  if (file_.version_ == 0x02000000 || file_.version_ == 0x03000000) {
    return error_at(4, "the file is big-endian; only little-endian files are supported");
  }
  if (file_.version_ != 2 && file_.version_ != 3) {
    return error_at(4, "GGUF version " + std::to_string(file_.version_) +
                           " is not supported; versions 2 and 3 are");
  }
  MR_ASSIGN_OR_RETURN(*num_tensors, read<uint64_t>("the number of tensors"));
  MR_ASSIGN_OR_RETURN(*num_values, read<uint64_t>("the number of key-values"));
  if (*num_tensors > left() / kMinTensorBytes) {
    return error_at(8, "the header declares " + std::to_string(*num_tensors) +
                           " tensors, more than the file can hold");
  }
  if (*num_values > left() / kMinValueBytes) {
    return error_at(16, "the header declares " + std::to_string(*num_values) +
                            " key-values, more than the file can hold");
  }
  return absl::OkStatus();
}

Status GgufParser::read_value() {
  const uint64_t begin = at_;
  MR_ASSIGN_OR_RETURN(const std::string_view key, read_string("a key", kMaxKeyBytes));
  if (key.empty()) return error_at(begin, "a key is empty");
  GgufValue value;
  MR_ASSIGN_OR_RETURN(const uint32_t type, read<uint32_t>("a value type"));
  value.type = static_cast<GgufType>(type);
  if (value.type == GgufType::array) {
    value.is_array = true;
    MR_ASSIGN_OR_RETURN(const uint32_t element, read<uint32_t>("an array's element type"));
    MR_ASSIGN_OR_RETURN(value.count, read<uint64_t>("an array's length"));
    value.type = static_cast<GgufType>(element);
  }
  MR_RETURN_IF_ERROR(read_elements(key, value));
  if (!file_.values_.emplace(key, value).second) {
    return error_at(begin, "key \"" + std::string(key) + "\" occurs twice");
  }
  return absl::OkStatus();
}

Status GgufParser::read_elements(std::string_view key, GgufValue& value) {
  const uint64_t begin = at_;
  const std::string named = "key \"" + std::string(key) + "\"";
  if (value.type == GgufType::string) {
    if (value.count > left() / sizeof(uint64_t)) {
      return error_at(begin, named + " declares " + std::to_string(value.count) +
                                 " strings, more than the file can hold");
    }
    for (uint64_t i = 0; i < value.count; ++i) {
      MR_RETURN_IF_ERROR(read_string("a string value", bytes_.size()).status());
    }
  } else {
    const uint64_t size = gguf_type_bytes(value.type);
    if (size == 0) {
      return error_at(begin, named + " has value type " +
                                 std::to_string(static_cast<uint32_t>(value.type)) +
                                 ", which is unknown or a nested array");
    }
    if (value.count > left() / size) {
      return error_at(begin, named + " declares " + std::to_string(value.count) +
                                 " elements, more than the file can hold");
    }
    at_ += value.count * size;
  }
  value.bytes = bytes_.subspan(begin, at_ - begin);
  return absl::OkStatus();
}

Status GgufParser::read_tensor() {
  StoredTensor tensor;
  const uint64_t begin = at_;
  MR_ASSIGN_OR_RETURN(const std::string_view name, read_string("a tensor name", kMaxNameBytes));
  if (name.empty()) return error_at(begin, "a tensor name is empty");
  tensor.name = std::string(name);
  MR_RETURN_IF_ERROR(read_dimensions(tensor));
  const uint64_t type_at = at_;
  MR_ASSIGN_OR_RETURN(const uint32_t type, read<uint32_t>("a tensor type"));
  const StoredTypeInfo* info = find_stored_type(type);
  if (info == nullptr) {
    return error_at(type_at, "tensor \"" + tensor.name + "\" has ggml type " +
                                 std::to_string(type) + ", which is not supported; " +
                                 supported_stored_types() + " are");
  }
  tensor.type = info->type;
  if (tensor.columns() % info->elements != 0) {
    return error_at(begin, "tensor \"" + tensor.name + "\" has rows of " +
                               std::to_string(tensor.columns()) + " elements, not a multiple of " +
                               std::to_string(info->elements) + " as " + info->name + " needs");
  }
  const uint64_t blocks = static_cast<uint64_t>(tensor.columns() / info->elements * tensor.rows());
  if (blocks > bytes_.size() / static_cast<uint64_t>(info->bytes)) {
    return error_at(begin, "tensor \"" + tensor.name + "\" of shape " + shape_text(tensor.shape) +
                               " is larger than the file");
  }
  tensor.bytes = blocks * static_cast<uint64_t>(info->bytes);
  MR_ASSIGN_OR_RETURN(const uint64_t offset, read<uint64_t>("a tensor offset"));
  offsets_.push_back(offset);
  file_.tensors_.push_back(std::move(tensor));
  return absl::OkStatus();
}

// Dimensions are stored innermost first. Their product stays below the number of elements that the
// file could hold at two bits each, so later products cannot overflow.
Status GgufParser::read_dimensions(StoredTensor& tensor) {
  const uint64_t begin = at_;
  const std::string named = "tensor \"" + tensor.name + "\"";
  MR_ASSIGN_OR_RETURN(const uint32_t rank, read<uint32_t>("a tensor's number of dimensions"));
  if (rank < 1 || rank > kMaxDimensions) {
    return error_at(begin,
                    named + " has " + std::to_string(rank) + " dimensions; 1 to 4 are supported");
  }
  const uint64_t limit = static_cast<uint64_t>(bytes_.size()) * 4;
  uint64_t elements = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    const uint64_t at = at_;
    MR_ASSIGN_OR_RETURN(const uint64_t size, read<uint64_t>("a tensor dimension"));
    if (size == 0 || size > limit / elements) {
      return error_at(at, named + " has a dimension of " + std::to_string(size) +
                              ", which is zero or more than the file can hold");
    }
    elements *= size;
    tensor.shape.push_back(static_cast<int64_t>(size));
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  return absl::OkStatus();
}

StatusOr<uint64_t> GgufParser::alignment() const {
  const GgufValue* value = file_.find("general.alignment");
  if (value == nullptr) return kDefaultAlignment;
  uint32_t alignment = 0;
  if (value->type == GgufType::u32 && !value->is_array) {
    std::memcpy(&alignment, value->bytes.data(), sizeof alignment);
  }
  if (!std::has_single_bit(alignment) || alignment > kMaxAlignment) {
    return absl::InvalidArgumentError(
        file_.name_ + ": key \"general.alignment\" must be a uint32 power of two up to " +
        std::to_string(kMaxAlignment) + ".");
  }
  return uint64_t{alignment};
}

Status GgufParser::place_tensors() {
  MR_ASSIGN_OR_RETURN(const uint64_t align, alignment());
  const uint64_t data_begin = (at_ + align - 1) / align * align;
  std::unordered_set<std::string_view> names;
  for (size_t i = 0; i < file_.tensors_.size(); ++i) {
    StoredTensor& tensor = file_.tensors_[i];
    const std::string named = file_.name_ + ": tensor \"" + tensor.name + "\"";
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(named + " occurs twice.");
    }
    if (offsets_[i] % align != 0) {
      return absl::InvalidArgumentError(
          named + " is at data offset " + std::to_string(offsets_[i]) +
          ", not a multiple of the alignment " + std::to_string(align) + ".");
    }
    const uint64_t room = bytes_.size() > data_begin ? bytes_.size() - data_begin : 0;
    if (offsets_[i] > room || tensor.bytes > room - offsets_[i]) {
      return absl::InvalidArgumentError(
          named + " needs " + std::to_string(tensor.bytes) + " bytes at data offset " +
          std::to_string(offsets_[i]) + ", but only " + std::to_string(room) +
          " bytes of data follow byte " + std::to_string(data_begin) + ": the file is truncated.");
    }
    tensor.data = bytes_.data() + data_begin + offsets_[i];
  }
  return absl::OkStatus();
}

Status GgufParser::check_overlaps() const {
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& tensor : file_.tensors_) order.push_back(&tensor);
  std::sort(order.begin(), order.end(),
            [](const StoredTensor* a, const StoredTensor* b) { return a->data < b->data; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->data + order[i - 1]->bytes > order[i]->data) {
      return absl::InvalidArgumentError(file_.name_ + ": tensors \"" + order[i - 1]->name +
                                        "\" and \"" + order[i]->name + "\" overlap.");
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
