// GenerationRequest: one chat or completions request, typed, defaulted and checked against every
// limit that does not need the tokenizer. Made once by parse_generation_request and never modified.
// A field that is null is absent; a wrong type or value is an error that names the field.
//
// Includes the JSON library: only files that build prompts from messages should include this.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/token.h"
#include "server/api/error.h"
#include "server/api/limits.h"
#include "server/api/route.h"

namespace millrace::api {

using Prompt = std::variant<std::string, std::vector<Token>>;

// Sampling values of requests that give none: the checkpoint's generation_config or these.
struct GenerationDefaults {
  double temperature = 1.0;
  double top_p = 1.0;
  int64_t top_k = 0;
  double min_p = 0.0;
  double typical_p = 1.0;
  double repetition_penalty = 1.0;
  std::optional<int64_t> max_tokens;  // max_new_tokens, a cap: it need not fit
};

// What the parser has to know about the server.
struct RequestRules {
  Limits limits;
  GenerationDefaults defaults;
  int64_t max_model_len = 0;
  int64_t vocab = 0;  // token ids are below this
  bool allow_request_chat_template = false;
  bool tool_arguments_as_objects = true;  // the form that the chat template wants
};

struct GenerationRequest {
  Route route = Route::chat;
  std::string model;  // empty: the server's default

  // Chat: the messages and tools in the form that chat templates read. Content parts are joined by
  // newlines; arguments of tool calls have the form that the rules ask for.
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools;  // null: none
  nlohmann::ordered_json chat_template_kwargs = nlohmann::ordered_json::object();
  std::string chat_template;     // empty: the model's
  std::string reasoning_effort;  // empty: not given
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool content_special_tokens = false;  // user text may spell control tokens

  // Completions.
  std::vector<Prompt> prompts;
  bool echo = false;

  bool add_special_tokens = true;  // the default is false on chat, whose template writes them
  std::optional<int64_t> truncate_prompt_tokens;  // -1: to what fits
  std::optional<int64_t> max_tokens;
  int64_t min_tokens = 0;
  double temperature = 1.0;
  double top_p = 1.0;
  int64_t top_k = 0;
  double min_p = 0.0;
  double typical_p = 1.0;
  double repetition_penalty = 1.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  std::optional<int64_t> seed;
  std::vector<std::string> stop;
  std::vector<Token> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  bool spaces_between_special_tokens = true;
  std::vector<std::pair<Token, float>> logit_bias;
  std::vector<Token> allowed_token_ids;
  std::vector<std::string> bad_words;
  int64_t n = 1;
  int64_t best_of = 1;              // >= n
  std::optional<int64_t> logprobs;  // alternatives per token; 0: the chosen token only
  std::optional<int64_t> prompt_logprobs;

  bool stream = false;
  bool include_usage = false;
  bool continuous_usage_stats = false;
  bool return_token_ids = false;

  int64_t priority = 0;
  std::string cache_salt;
  std::string request_id;
  std::string user;
  std::optional<int64_t> timeout_ms;
  std::optional<int64_t> ttft_slo_ms;  // a hint, recorded and not yet acted on
};

Result<GenerationRequest> parse_generation_request(Route route, std::string_view body,
                                                   const RequestRules& rules);

// POST /tokenize: a prompt, or messages as on chat.
struct TokenizeRequest {
  GenerationRequest request;  // route: chat if messages were given; one text prompt otherwise
  bool return_token_strings = false;
};
Result<TokenizeRequest> parse_tokenize_request(std::string_view body, const RequestRules& rules);

struct DetokenizeRequest {
  std::string model;
  std::vector<Token> tokens;
};
Result<DetokenizeRequest> parse_detokenize_request(std::string_view body,
                                                   const RequestRules& rules);

}  // namespace millrace::api
