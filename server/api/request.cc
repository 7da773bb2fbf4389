#include "server/api/request.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "server/api/json_shape.h"
#include "server/api/json_value.h"
#include "server/api/request_fields.h"

namespace millrace::api {
namespace {

using Json = nlohmann::ordered_json;

std::vector<ShapeLimit> shape_limits(const Limits& l) {
  return {
      {.field = "messages", .max_elements = l.max_messages},
      {.field = "prompt",
       .max_elements = l.max_prompts,
       .max_values = l.max_prompt_values,
       .numbers_are_free = true},
      {.field = "stop", .max_elements = l.max_stop_strings, .max_string_bytes = l.max_stop_bytes},
      {.field = "stop_token_ids", .max_elements = l.max_stop_token_ids},
      {.field = "logit_bias", .max_elements = l.max_logit_bias},
      {.field = "allowed_token_ids", .max_elements = l.max_allowed_token_ids},
      {.field = "bad_words",
       .max_elements = l.max_bad_words,
       .max_string_bytes = l.max_bad_word_bytes},
      {.field = "tools", .max_elements = l.max_tools},
      {.field = "functions", .max_elements = l.max_tools},
      {.field = "chat_template_kwargs", .max_elements = l.max_template_kwargs},
  };
}

// The body as an object, after its size has been judged.
Result<Json> parse_body(std::string_view body, const Limits& limits) {
  if (body.size() > limits.max_body_bytes) {
    return Error{.http_status = 413,
                 .code = "body_too_large",
                 .message = "The request body has " + std::to_string(body.size()) +
                            " bytes, at most " + std::to_string(limits.max_body_bytes) +
                            " are allowed."};
  }
  const std::vector<ShapeLimit> shapes = shape_limits(limits);
  if (auto error = check_json_shape(body, limits, shapes)) return *std::move(error);
  Result<Json> parsed = parse_json(body);
  if (parsed.ok() && !parsed->is_object()) {
    return invalid_field("", "The request body must be a JSON object.");
  }
  return parsed;
}

GenerationRequest with_defaults(Route route, const RequestRules& rules) {
  const GenerationDefaults& d = rules.defaults;
  GenerationRequest r;
  r.route = route;
  r.add_special_tokens = route == Route::completions;
  r.temperature = d.temperature;
  r.top_p = d.top_p;
  r.top_k = d.top_k;
  r.min_p = d.min_p;
  r.typical_p = d.typical_p;
  r.repetition_penalty = d.repetition_penalty;
  return r;
}

std::optional<Error> check_chat(const Json& body, const GenerationRequest& r) {
  if (r.messages.empty()) {
    return invalid_field("messages", "messages must have at least one element.");
  }
  if (!r.continue_final_message) return std::nullopt;
  if (r.add_generation_prompt && find_member(body, "add_generation_prompt")) {
    return invalid_field("continue_final_message",
                         "continue_final_message and add_generation_prompt cannot both be true.");
  }
  if (r.messages.back()["role"] != "assistant") {
    return invalid_field("continue_final_message",
                         "continue_final_message needs a last message of the assistant.");
  }
  return std::nullopt;
}

// What two fields say about one another.
std::optional<Error> check_together(const Json& body, const GenerationRequest& r) {
  if (r.route == Route::chat) {
    if (auto error = check_chat(body, r)) return error;
    if (!r.logprobs && find_member(body, "top_logprobs")) {
      return invalid_field("top_logprobs", "top_logprobs needs logprobs to be true.");
    }
  } else if (r.prompts.empty()) {
    return invalid_field("prompt", "prompt must be a string, a list of strings or token ids.");
  }
  if (!r.stream && find_member(body, "stream_options")) {
    return invalid_field("stream_options", "stream_options needs stream to be true.");
  }
  if (r.stream && r.prompt_logprobs) {
    return invalid_field("prompt_logprobs", "prompt_logprobs is not available in a stream.");
  }
  if (r.max_tokens && r.min_tokens > *r.max_tokens) {
    return invalid_field("min_tokens", "min_tokens is " + std::to_string(r.min_tokens) +
                                           ", more than max_tokens, which is " +
                                           std::to_string(*r.max_tokens) + ".");
  }
  if (r.best_of < r.n) {
    return invalid_field("best_of", "best_of is " + std::to_string(r.best_of) +
                                        ", it must be at least n, which is " + std::to_string(r.n) +
                                        ".");
  }
  if (r.best_of > r.n && r.stream) {
    return invalid_field("best_of", "best_of must equal n in a stream.");
  }
  return std::nullopt;
}

}  // namespace

Result<GenerationRequest> parse_generation_request(Route route, std::string_view text,
                                                   const RequestRules& rules) {
  Result<Json> body = parse_body(text, rules.limits);
  if (!body.ok()) return body.error();
  GenerationRequest request = with_defaults(route, rules);
  if (auto error = read_fields(*body, rules, request)) return *std::move(error);
  if (!find_member(*body, "best_of")) request.best_of = request.n;
  if (request.continue_final_message && !find_member(*body, "add_generation_prompt")) {
    request.add_generation_prompt = false;
  }
  if (auto error = check_together(*body, request)) return *std::move(error);
  const auto choices =
      request.best_of * static_cast<int64_t>(std::max<size_t>(1, request.prompts.size()));
  if (choices > rules.limits.max_choices) {
    return invalid_field("n", "n (or best_of) times the number of prompts is " +
                                  std::to_string(choices) + ", at most " +
                                  std::to_string(rules.limits.max_choices) + " is allowed.");
  }
  return request;
}

Result<TokenizeRequest> parse_tokenize_request(std::string_view text, const RequestRules& rules) {
  Result<Json> body = parse_body(text, rules.limits);
  if (!body.ok()) return body.error();
  const bool chat = find_member(*body, "messages") != nullptr;
  TokenizeRequest out;
  out.request = with_defaults(chat ? Route::chat : Route::completions, rules);
  if (auto error = read_fields(*body, rules, out.request)) return *std::move(error);
  if (chat) {
    if (auto error = check_chat(*body, out.request)) return *std::move(error);
  } else if (out.request.prompts.size() != 1 ||
             !std::holds_alternative<std::string>(out.request.prompts[0])) {
    return invalid_field("prompt", "prompt must be one string, or messages a list.");
  }
  if (const Json* strings = find_member(*body, "return_token_strs")) {
    if (!strings->is_boolean()) return wrong_type("return_token_strs", *strings, "a boolean");
    out.return_token_strings = strings->get<bool>();
  }
  return out;
}

Result<DetokenizeRequest> parse_detokenize_request(std::string_view text,
                                                   const RequestRules& rules) {
  const ShapeLimit tokens[] = {{.field = "tokens", .max_values = rules.limits.max_prompt_values}};
  if (text.size() > rules.limits.max_body_bytes) return parse_body(text, rules.limits).error();
  if (auto error = check_json_shape(text, rules.limits, tokens)) return *std::move(error);
  Result<Json> body = parse_json(text);
  if (!body.ok()) return body.error();
  if (!body->is_object()) return invalid_field("", "The request body must be a JSON object.");
  DetokenizeRequest out;
  if (const Json* model = find_member(*body, "model")) {
    if (!model->is_string()) return wrong_type("model", *model, "a string");
    out.model = model->get<std::string>();
  }
  const Json* list = find_member(*body, "tokens");
  if (!list) return invalid_field("tokens", "tokens must be a list of token ids.");
  Result<std::vector<Token>> ids = read_token_ids(*list, "tokens", rules);
  if (!ids.ok()) return ids.error();
  out.tokens = *std::move(ids);
  return out;
}

}  // namespace millrace::api
