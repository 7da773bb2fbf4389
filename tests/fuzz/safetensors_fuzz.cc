// Safetensors headers and shard indexes from arbitrary bytes.
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/load/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  parse_safetensors({data, size}, "fuzz.safetensors").IgnoreError();
  parse_shard_index(std::string(reinterpret_cast<const char*>(data), size), "fuzz.index.json")
      .IgnoreError();
  return 0;
}
