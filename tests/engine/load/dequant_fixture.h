// The committed blocks of every quantised type with the values that the `gguf` package gives them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/load/stored_tensor.h"

namespace millrace {

struct DequantCase {
  StoredType type;
  std::string name;
  std::vector<uint8_t> blocks;
  std::vector<float> floats;  // 1024
};
std::vector<DequantCase> read_dequant_cases();

}  // namespace millrace
