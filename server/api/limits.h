// Limits: every bound on what a request may ask for. Each is checked before memory is spent on what
// it bounds, and named in the error. Operators set the body's size and the number of alternatives;
// the rest is fixed. A value, made at start.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::api {

struct Limits {
  size_t max_body_bytes = 8 << 20;
  int max_json_depth = 64;
  int64_t max_json_values = 100'000;      // values of a body at any depth, `prompt` apart
  int64_t max_prompt_values = 2'000'000;  // the same in `prompt`, whose token ids are values
  int64_t max_json_members = 512;         // of one object; finding one of them is a linear search
  int64_t max_messages = 4096;
  int64_t max_content_parts = 1024;  // of one message
  int64_t max_prompts = 2048;        // of one completions request
  int64_t max_stop_strings = 4;
  size_t max_stop_bytes = 1024;  // of one stop string
  int64_t max_stop_token_ids = 1024;
  int64_t max_logit_bias = 1024;
  int64_t max_allowed_token_ids = 16'384;
  int64_t max_bad_words = 128;
  size_t max_bad_word_bytes = 256;
  int64_t max_logprobs = 20;   // top_logprobs, logprobs and prompt_logprobs
  int64_t max_n = 128;         // n and best_of
  int64_t max_choices = 4096;  // prompts x best_of
  int64_t max_tools = 128;
  int64_t max_template_kwargs = 64;
  size_t max_short_string_bytes = 512;  // user, request_id, cache_salt
  int64_t max_timeout_ms = 86'400'000;
  double max_temperature = 2.0;
};

}  // namespace millrace::api
