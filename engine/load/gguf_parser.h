// GgufParser: one pass over the bytes of a GGUF file. Used once, by GgufFile::parse.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/load/gguf.h"

namespace millrace {

// Bytes of one element of a fixed-size type; 0 for strings, arrays and unknown numbers.
size_t gguf_type_bytes(GgufType type);
const char* gguf_type_name(GgufType type);

class GgufParser {
 public:
  GgufParser(std::span<const uint8_t> bytes, std::string name) : bytes_(bytes) {
    file_.name_ = std::move(name);
  }
  StatusOr<GgufFile> run();

 private:
  template <class T>
  StatusOr<T> read(const char* what);
  StatusOr<std::string_view> read_string(const char* what, uint64_t max_bytes);
  Status read_header(uint64_t* num_tensors, uint64_t* num_values);
  Status read_value();
  Status read_elements(std::string_view key, GgufValue& value);
  Status read_tensor();
  Status read_dimensions(StoredTensor& tensor);
  Status place_tensors();
  Status check_overlaps() const;
  StatusOr<uint64_t> alignment() const;

  uint64_t left() const { return bytes_.size() - at_; }
  Status error(const std::string& what) const { return error_at(at_, what); }
  Status error_at(uint64_t offset, const std::string& what) const;

  std::span<const uint8_t> bytes_;
  uint64_t at_ = 0;
  GgufFile file_;
  std::vector<uint64_t> offsets_;  // of each tensor, from the start of the data
};

}  // namespace millrace
