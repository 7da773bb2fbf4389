// Request bodies of every route from arbitrary bytes: total, bounded, and what passes is valid.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/api/json_value.h"
#include "server/api/request.h"

namespace {

using namespace millrace;

void require(bool condition) {
  if (!condition) __builtin_trap();
}

// An error is something that a client can be told: a status of its own making, in strict JSON.
void check_error(const api::Error& error) {
  require(error.http_status >= 400 && error.http_status < 500 && !error.message.empty());
  require(api::parse_json(api::error_json(error)).ok());
}

void check_request(const api::GenerationRequest& r, const api::RequestRules& rules) {
  const api::Limits& l = rules.limits;
  require(r.n >= 1 && r.best_of >= r.n && r.best_of <= l.max_n);
  require(static_cast<int64_t>(r.stop.size()) <= l.max_stop_strings);
  require(static_cast<int64_t>(r.logit_bias.size()) <= l.max_logit_bias);
  require(r.temperature >= 0.0 && r.temperature <= l.max_temperature);
  require(r.top_p >= 0.0 && r.top_p <= 1.0 && r.typical_p > 0.0 && r.repetition_penalty > 0.0);
  require(!r.max_tokens || (*r.max_tokens <= rules.max_model_len && *r.max_tokens >= r.min_tokens));
  require(!r.logprobs || *r.logprobs <= l.max_logprobs);
  for (const api::Prompt& prompt : r.prompts) {
    const auto* ids = std::get_if<std::vector<Token>>(&prompt);
    if (!ids) continue;
    for (const Token id : *ids) require(id >= 0 && id < rules.vocab);
  }
  require(r.route == api::Route::completions ? !r.prompts.empty() : !r.messages.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  api::RequestRules rules;
  rules.max_model_len = 4096;
  rules.vocab = 1000;
  rules.tool_arguments_as_objects = size % 2 == 0;
  for (const api::Route route : {api::Route::chat, api::Route::completions}) {
    const auto request = api::parse_generation_request(route, body, rules);
    request.ok() ? check_request(*request, rules) : check_error(request.error());
  }
  if (const auto tokenize = api::parse_tokenize_request(body, rules); !tokenize.ok())
    check_error(tokenize.error());
  if (const auto detokenize = api::parse_detokenize_request(body, rules); !detokenize.ok())
    check_error(detokenize.error());
  return 0;
}
