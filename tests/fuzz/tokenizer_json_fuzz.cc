// Arbitrary bytes as tokenizer.json: loading refuses or gives a tokenizer that can encode and
// decode.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/text/detokenizer.h"
#include "engine/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = Tokenizer::from_tokenizer_json(json);
  if (!tokenizer.ok()) return 0;
  static constexpr char kText[] =
      "Hello <s> w\xC3\xB6rld's  12345\r\n\t\xE6\x97\xA5\xE6\x9C\xAC e\xCC\x81 \xFF\xC0 <tool> "
      "aaaa";
  const ByteRange literal[] = {{6, 9}, {30, 40}};
  const auto ids = (*tokenizer)->encode(kText, {.literal = literal});
  (*tokenizer)->encode(kText, {.parse_special = false});
  Detokenizer detokenizer(**tokenizer, {.skip_special_tokens = false});
  std::string stream;
  for (const Token id : ids) stream += detokenizer.push(id);
  stream += detokenizer.finish();
  if (stream != (*tokenizer)->decode(ids, false)) __builtin_trap();
  return 0;
}
