// GGUF headers, metadata and vocabulary from arbitrary bytes.
#include <cstddef>
#include <cstdint>

#include "engine/load/gguf.h"
#include "engine/load/gguf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const auto file = GgufFile::parse({data, size}, "fuzz.gguf");
  if (!file.ok()) return 0;
  const auto catalog =
      TensorCatalog::make(file->tensors(), {"fuzz.gguf"}, TensorNaming::gguf, true);
  if (!catalog.ok()) return 0;
  gguf_model_config(*file, *catalog).IgnoreError();
  gguf_vocabulary(*file).IgnoreError();
  return 0;
}
