// Request bodies of every generating route from arbitrary bytes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/api/request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  api::RequestRules rules;
  rules.max_model_len = 4096;
  rules.vocab = 1000;
  for (const api::Route route : {api::Route::chat, api::Route::completions}) {
    const auto request = api::parse_generation_request(route, body, rules);
    if (request.ok() && (request->n < 1 || request->best_of < request->n)) __builtin_trap();
    if (!request.ok()) api::error_json(request.error());
  }
  api::parse_tokenize_request(body, rules);
  api::parse_detokenize_request(body, rules);
  return 0;
}
