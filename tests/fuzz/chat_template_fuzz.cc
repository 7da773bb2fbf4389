// Chat templates from arbitrary bytes, compiled and rendered within tight budgets.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const auto compiled =
      ChatTemplate::compile(std::string(reinterpret_cast<const char*>(data), size));
  if (!compiled.ok()) return 0;
  const nlohmann::ordered_json context = {
      {"messages",
       {{{"role", "system"}, {"content", "Be brief."}},
        {{"role", "user"}, {"content", "h\xc3\xa4 <|im_end|> {{ 7*7 }}"}}}},
      {"tools", {{{"type", "function"}, {"function", {{"name", "f"}, {"x", 1.5}}}}}},
      {"add_generation_prompt", true},
      {"bos_token", "<s>"}};
  const RenderLimits limits{.max_steps = 20'000, .max_output_bytes = 64 << 10, .max_depth = 64};
  const auto rendered = (*compiled)->render(context, limits);
  if (!rendered.ok()) return 0;
  size_t end = 0;
  for (const ByteRange& r : rendered->user_ranges) {
    if (r.begin < end || r.end <= r.begin || r.end > rendered->text.size()) __builtin_trap();
    end = r.end;
  }
  return 0;
}
