// Safetensors files: a u64 header length, a JSON header of names, types, shapes and byte ranges,
// then the data. Every number is checked against the size of the bytes before it is used. Pure
// functions; the bytes outlive the result.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/load/stored_tensor.h"

namespace millrace {

// All tensors of one file, in file order; `name` stands for the file in errors. F32, F16 and BF16
// are supported. The data must be covered without overlaps and gaps.
StatusOr<std::vector<StoredTensor>> parse_safetensors(std::span<const uint8_t> bytes,
                                                      const std::string& name);

// model.safetensors.index.json: which file holds each tensor.
struct ShardIndex {
  std::vector<std::string> files;                       // distinct, in order of first mention
  std::vector<std::pair<std::string, size_t>> tensors;  // name -> index into files
};
StatusOr<ShardIndex> parse_shard_index(const std::string& text, const std::string& name);

}  // namespace millrace
