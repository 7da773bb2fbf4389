#include "server/api/request_fields.h"

#include <charconv>
#include <cmath>
#include <string>

#include "server/api/json_value.h"
#include "server/api/messages.h"

namespace millrace::api {
namespace {

using Json = nlohmann::ordered_json;
using Request = GenerationRequest;
using MaybeError = std::optional<Error>;

enum Routes : uint8_t { kChat = 1, kCompletions = 2, kBoth = 3 };

bool applies(uint8_t routes, Route route) {
  return (routes & (route == Route::chat ? kChat : kCompletions)) != 0;
}

// ---- Plain values: a table for each kind ------------------------------------------------------

struct BoolField {
  std::string_view name;
  uint8_t routes;
  bool Request::*member;
};
constexpr BoolField kBools[] = {
    {"stream", kBoth, &Request::stream},
    {"echo", kCompletions, &Request::echo},
    {"ignore_eos", kBoth, &Request::ignore_eos},
    {"skip_special_tokens", kBoth, &Request::skip_special_tokens},
    {"spaces_between_special_tokens", kBoth, &Request::spaces_between_special_tokens},
    {"include_stop_str_in_output", kBoth, &Request::include_stop_str_in_output},
    {"add_special_tokens", kBoth, &Request::add_special_tokens},
    {"add_generation_prompt", kChat, &Request::add_generation_prompt},
    {"continue_final_message", kChat, &Request::continue_final_message},
    {"content_special_tokens", kChat, &Request::content_special_tokens},
    {"return_token_ids", kBoth, &Request::return_token_ids},
};

struct NumberField {
  std::string_view name;
  double Request::*member;
  double min, max;
  std::string_view legal;
  bool above_min = false;  // min itself is not legal
};
constexpr NumberField kNumbers[] = {
    {"top_p", &Request::top_p, 0.0, 1.0, "between 0 and 1"},
    {"min_p", &Request::min_p, 0.0, 1.0, "between 0 and 1"},
    {"typical_p", &Request::typical_p, 0.0, 1.0, "above 0 and at most 1", true},
    {"repetition_penalty", &Request::repetition_penalty, 0.0, 2.0, "above 0 and at most 2", true},
    {"presence_penalty", &Request::presence_penalty, -2.0, 2.0, "between -2 and 2"},
    {"frequency_penalty", &Request::frequency_penalty, -2.0, 2.0, "between -2 and 2"},
};

std::string between(int64_t min, int64_t max) {
  return "an integer between " + std::to_string(min) + " and " + std::to_string(max);
}

MaybeError read_integer(const Json& value, std::string_view name, int64_t min, int64_t max,
                        int64_t& out) {
  if (!value.is_number()) return wrong_type(name, value, between(min, max));
  const std::optional<int64_t> integer = as_integer(value);
  if (!integer || *integer < min || *integer > max)
    return out_of_range(name, value, between(min, max));
  out = *integer;
  return std::nullopt;
}

MaybeError read_integer(const Json& value, std::string_view name, int64_t min, int64_t max,
                        std::optional<int64_t>& out) {
  int64_t integer = 0;
  if (auto error = read_integer(value, name, min, max, integer)) return error;
  out = integer;
  return std::nullopt;
}

MaybeError read_number(const Json& value, std::string_view name, double min, double max,
                       std::string_view legal, bool above_min, double& out) {
  const std::string kind = "a number " + std::string(legal);
  if (!value.is_number()) return wrong_type(name, value, kind);
  const double number = value.get<double>();
  if (!(number >= min && number <= max) || (above_min && number == min))
    return out_of_range(name, value, kind);
  out = number;
  return std::nullopt;
}

MaybeError read_string(const Json& value, std::string_view name, size_t max_bytes,
                       std::string& out) {
  if (!value.is_string()) return wrong_type(name, value, "a string");
  out = value.get<std::string>();
  if (out.size() <= max_bytes) return std::nullopt;
  return invalid_field(std::string(name), std::string(name) + " has " + std::to_string(out.size()) +
                                              " bytes, at most " + std::to_string(max_bytes) +
                                              " are allowed.");
}

// ---- Fields with a form of their own ------------------------------------------------------------

struct Reading {
  const RequestRules& rules;
  Request& request;
};
using ReadField = MaybeError (*)(const Json& value, Reading& r);

MaybeError too_many(std::string_view name, int64_t limit) {
  return invalid_field(std::string(name), std::string(name) + ": at most " + std::to_string(limit) +
                                              " elements are allowed.");
}

MaybeError read_strings(const Json& value, std::string_view name, int64_t max_count,
                        size_t max_bytes, std::vector<std::string>& out) {
  if (!value.is_array()) return wrong_type(name, value, "a list of strings");
  if (static_cast<int64_t>(value.size()) > max_count) return too_many(name, max_count);
  for (const Json& element : value) {
    std::string text;
    if (auto error = read_string(element, name, max_bytes, text)) return error;
    if (text.empty())
      return invalid_field(std::string(name), std::string(name) + ": a string is empty.");
    out.push_back(std::move(text));
  }
  return std::nullopt;
}

MaybeError read_stop(const Json& value, Reading& r) {
  const Limits& l = r.rules.limits;
  if (!value.is_string()) {
    if (!value.is_array()) return wrong_type("stop", value, "a string or a list of strings");
    return read_strings(value, "stop", l.max_stop_strings, l.max_stop_bytes, r.request.stop);
  }
  std::string text;
  if (auto error = read_string(value, "stop", l.max_stop_bytes, text)) return error;
  if (!text.empty()) r.request.stop.push_back(std::move(text));
  return std::nullopt;
}

MaybeError read_ids(const Json& value, std::string_view name, int64_t limit, const Reading& r,
                    std::vector<Token>& out) {
  if (value.is_array() && static_cast<int64_t>(value.size()) > limit) return too_many(name, limit);
  Result<std::vector<Token>> ids = read_token_ids(value, name, r.rules);
  if (!ids.ok()) return ids.error();
  out = *std::move(ids);
  return std::nullopt;
}

MaybeError read_logit_bias(const Json& value, Reading& r) {
  if (!value.is_object()) return wrong_type("logit_bias", value, "an object of token ids");
  if (static_cast<int64_t>(value.size()) > r.rules.limits.max_logit_bias)
    return too_many("logit_bias", r.rules.limits.max_logit_bias);
  for (const auto& [key, bias] : value.items()) {
    int64_t id = -1;
    const auto [end, status] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (status != std::errc{} || end != key.data() + key.size() || id < 0 || id >= r.rules.vocab)
      return out_of_range("logit_bias", Json(key),
                          "keys that are token ids below " + std::to_string(r.rules.vocab));
    double number = 0.0;
    if (auto error =
            read_number(bias, "logit_bias", -100.0, 100.0, "between -100 and 100", false, number))
      return error;
    r.request.logit_bias.emplace_back(static_cast<Token>(id), static_cast<float>(number));
  }
  return std::nullopt;
}

MaybeError read_max_tokens(const Json& value, std::string_view name, Reading& r) {
  const int64_t least = r.request.route == Route::chat ? 1 : 0;
  return read_integer(value, name, least, r.rules.max_model_len, r.request.max_tokens);
}

MaybeError read_logprobs(const Json& value, Reading& r) {
  const int64_t most = r.rules.limits.max_logprobs;
  if (r.request.route == Route::completions) {
    if (value.is_boolean() && !value.get<bool>()) return std::nullopt;
    return read_integer(value, "logprobs", 0, most, r.request.logprobs);
  }
  if (!value.is_boolean()) return wrong_type("logprobs", value, "a boolean");
  if (value.get<bool>() && !r.request.logprobs) r.request.logprobs = 0;
  return std::nullopt;
}

// After logprobs, which says whether there are any.
MaybeError read_top_logprobs(const Json& value, Reading& r) {
  std::optional<int64_t> count;
  if (auto error = read_integer(value, "top_logprobs", 0, r.rules.limits.max_logprobs, count))
    return error;
  if (r.request.logprobs) r.request.logprobs = count;
  return std::nullopt;
}

MaybeError read_stream_options(const Json& value, Reading& r) {
  if (!value.is_object()) return wrong_type("stream_options", value, "an object");
  for (const auto& [name, member] :
       {std::pair{"include_usage", &Request::include_usage},
        std::pair{"continuous_usage_stats", &Request::continuous_usage_stats}}) {
    const Json* flag = find_member(value, name);
    if (!flag) continue;
    if (!flag->is_boolean())
      return wrong_type(std::string("stream_options.") + name, *flag, "a boolean");
    r.request.*member = flag->get<bool>();
  }
  return std::nullopt;
}

MaybeError read_prompt_element(const Json& value, Reading& r) {
  if (value.is_string()) {
    r.request.prompts.emplace_back(value.get<std::string>());
    return std::nullopt;
  }
  Result<std::vector<Token>> ids = read_token_ids(value, "prompt", r.rules);
  if (!ids.ok()) return ids.error();
  if (ids->empty()) return invalid_field("prompt", "prompt: a list of token ids is empty.");
  r.request.prompts.emplace_back(*std::move(ids));
  return std::nullopt;
}

// A string, token ids, or a list of either.
MaybeError read_prompt(const Json& value, Reading& r) {
  const std::string_view legal = "a string, a list of strings, or one or more lists of token ids";
  if (value.is_string()) return read_prompt_element(value, r);
  if (!value.is_array() || value.empty()) return wrong_type("prompt", value, legal);
  if (value[0].is_number()) return read_prompt_element(value, r);
  if (static_cast<int64_t>(value.size()) > r.rules.limits.max_prompts)
    return too_many("prompt", r.rules.limits.max_prompts);
  for (const Json& element : value) {
    if (!element.is_string() && !element.is_array()) return wrong_type("prompt", element, legal);
    if (auto error = read_prompt_element(element, r)) return error;
  }
  return std::nullopt;
}

// tool_choice and its legacy name, function_call.
MaybeError read_tool_choice(const Json& value, const char* name) {
  if (value == "auto" || value == "none") return std::nullopt;
  if (value == "required" || value.is_object())
    return unsupported_field(name, std::string(name) +
                                       ": only \"auto\" and \"none\" are supported in this "
                                       "version.");
  return wrong_type(name, value, "\"auto\" or \"none\"");
}

MaybeError read_response_format(const Json& value, Reading&) {
  if (!value.is_object()) return wrong_type("response_format", value, "an object");
  const Json* type = find_member(value, "type");
  if (type && *type == "text") return std::nullopt;
  return unsupported_field("response_format",
                           "response_format: only {\"type\": \"text\"} is supported in this "
                           "version.");
}

MaybeError read_template_kwargs(const Json& value, Reading& r) {
  if (!value.is_object()) return wrong_type("chat_template_kwargs", value, "an object");
  if (static_cast<int64_t>(value.size()) > r.rules.limits.max_template_kwargs)
    return too_many("chat_template_kwargs", r.rules.limits.max_template_kwargs);
  for (const auto& [key, ignored] : value.items()) {
    const bool reserved = key == "chat_template" || key == "messages" || key == "tools" ||
                          key == "documents" || key == "add_generation_prompt" ||
                          key == "continue_final_message" || key == "tokenize" ||
                          key.ends_with("_token");
    if (reserved)
      return invalid_field("chat_template_kwargs",
                           "chat_template_kwargs: \"" + key + "\" is reserved.");
  }
  r.request.chat_template_kwargs = value;
  return std::nullopt;
}

MaybeError read_chat_template(const Json& value, Reading& r) {
  if (!value.is_string()) return wrong_type("chat_template", value, "a string");
  if (!r.rules.allow_request_chat_template)
    return unsupported_field("chat_template",
                             "chat_template: this server does not take templates from requests.");
  r.request.chat_template = value.get<std::string>();
  return std::nullopt;
}

MaybeError read_suffix(const Json& value, Reading&) {
  if (!value.is_string()) return wrong_type("suffix", value, "a string");
  if (value.get_ref<const std::string&>().empty()) return std::nullopt;
  return unsupported_field("suffix", "suffix is not supported in this version.");
}

template <Result<Json> (*Read)(const Json&, const RequestRules&), Json Request::*Member>
MaybeError read_structured(const Json& value, Reading& r) {
  Result<Json> read = Read(value, r.rules);
  if (!read.ok()) return read.error();
  r.request.*Member = *std::move(read);
  return std::nullopt;
}

// Fields of the one route that are known on the other: what they ask for is refused there, not
// passed over.
MaybeError refuse_echo(const Json& value, Reading&) {
  if (!value.is_boolean()) return wrong_type("echo", value, "a boolean");
  if (!value.get<bool>()) return std::nullopt;
  return unsupported_field("echo", "echo is supported on /v1/completions only.");
}

MaybeError refuse_top_logprobs(const Json& value, Reading& r) {
  int64_t count = 0;
  if (auto error = read_integer(value, "top_logprobs", 0, r.rules.limits.max_logprobs, count))
    return error;
  if (count == 0) return std::nullopt;
  return unsupported_field("top_logprobs",
                           "top_logprobs is supported on chat only; completions take a number as "
                           "logprobs.");
}

MaybeError not_supported(const char* name) {
  return unsupported_field(name, std::string(name) + " is not supported in this version.");
}

MaybeError short_string(const Json& value, std::string_view name, Reading& r,
                        std::string Request::*member) {
  return read_string(value, name, r.rules.limits.max_short_string_bytes, r.request.*member);
}

struct SpecialField {
  std::string_view name;
  uint8_t routes;
  ReadField read;
};
// In the order in which they are read: a later one may look at an earlier one.
constexpr SpecialField kSpecial[] = {
    {"messages", kChat, read_structured<read_messages, &Request::messages>},
    {"tools", kChat, read_structured<read_tools, &Request::tools>},
    {"functions", kChat, read_structured<read_functions, &Request::tools>},
    {"tool_choice", kChat,
     [](const Json& v, Reading&) { return read_tool_choice(v, "tool_choice"); }},
    {"function_call", kChat,
     [](const Json& v, Reading&) { return read_tool_choice(v, "function_call"); }},
    {"prompt", kCompletions, read_prompt},
    {"suffix", kCompletions, read_suffix},
    {"chat_template", kChat, read_chat_template},
    {"chat_template_kwargs", kChat, read_template_kwargs},
    {"response_format", kBoth, read_response_format},
    {"structured_outputs", kBoth,
     [](const Json&, Reading&) { return not_supported("structured_outputs"); }},
    {"guided_json", kBoth, [](const Json&, Reading&) { return not_supported("guided_json"); }},
    {"guided_regex", kBoth, [](const Json&, Reading&) { return not_supported("guided_regex"); }},
    {"guided_choice", kBoth, [](const Json&, Reading&) { return not_supported("guided_choice"); }},
    {"guided_grammar", kBoth,
     [](const Json&, Reading&) { return not_supported("guided_grammar"); }},
    {"stop", kBoth, read_stop},
    {"logit_bias", kBoth, read_logit_bias},
    {"logprobs", kBoth, read_logprobs},
    {"top_logprobs", kChat, read_top_logprobs},
    {"top_logprobs", kCompletions, refuse_top_logprobs},
    {"echo", kChat, refuse_echo},
    {"stream_options", kBoth, read_stream_options},
    {"stop_token_ids", kBoth,
     [](const Json& v, Reading& r) {
       return read_ids(v, "stop_token_ids", r.rules.limits.max_stop_token_ids, r,
                       r.request.stop_token_ids);
     }},
    {"allowed_token_ids", kBoth,
     [](const Json& v, Reading& r) -> MaybeError {
       if (v.is_array() && v.empty())
         return invalid_field("allowed_token_ids",
                              "allowed_token_ids must have at least one element.");
       return read_ids(v, "allowed_token_ids", r.rules.limits.max_allowed_token_ids, r,
                       r.request.allowed_token_ids);
     }},
    {"bad_words", kBoth,
     [](const Json& v, Reading& r) {
       const Limits& l = r.rules.limits;
       return read_strings(v, "bad_words", l.max_bad_words, l.max_bad_word_bytes,
                           r.request.bad_words);
     }},
    {"temperature", kBoth,
     [](const Json& v, Reading& r) {
       const double most = r.rules.limits.max_temperature;
       return read_number(v, "temperature", 0.0, most, "between 0 and " + dump(Json(most)), false,
                          r.request.temperature);
     }},
    {"top_k", kBoth,
     [](const Json& v, Reading& r) {
       return read_integer(v, "top_k", -1, int64_t{1} << 31, r.request.top_k);
     }},
    {"max_tokens", kBoth,
     [](const Json& v, Reading& r) { return read_max_tokens(v, "max_tokens", r); }},
    {"max_completion_tokens", kChat,
     [](const Json& v, Reading& r) { return read_max_tokens(v, "max_completion_tokens", r); }},
    {"min_tokens", kBoth,
     [](const Json& v, Reading& r) {
       return read_integer(v, "min_tokens", 0, r.rules.max_model_len, r.request.min_tokens);
     }},
    {"n", kBoth,
     [](const Json& v, Reading& r) {
       return read_integer(v, "n", 1, r.rules.limits.max_n, r.request.n);
     }},
    {"best_of", kBoth,
     [](const Json& v, Reading& r) {
       return read_integer(v, "best_of", 1, r.rules.limits.max_n, r.request.best_of);
     }},
    {"seed", kBoth,
     [](const Json& v, Reading& r) {
       return read_integer(v, "seed", INT64_MIN, INT64_MAX, r.request.seed);
     }},
    {"prompt_logprobs", kBoth,
     [](const Json& v, Reading& r) {
       return read_integer(v, "prompt_logprobs", 0, r.rules.limits.max_logprobs,
                           r.request.prompt_logprobs);
     }},
    {"truncate_prompt_tokens", kBoth,
     [](const Json& v, Reading& r) -> MaybeError {
       if (v == -1) {
         r.request.truncate_prompt_tokens = -1;
         return std::nullopt;
       }
       return read_integer(v, "truncate_prompt_tokens", 1, r.rules.max_model_len,
                           r.request.truncate_prompt_tokens);
     }},
    {"priority", kBoth,
     [](const Json& v, Reading& r) {
       return read_integer(v, "priority", INT32_MIN, INT32_MAX, r.request.priority);
     }},
    {"timeout_ms", kBoth,
     [](const Json& v, Reading& r) {
       return read_integer(v, "timeout_ms", 1, r.rules.limits.max_timeout_ms, r.request.timeout_ms);
     }},
    {"ttft_slo_ms", kBoth,
     [](const Json& v, Reading& r) {
       return read_integer(v, "ttft_slo_ms", 1, r.rules.limits.max_timeout_ms,
                           r.request.ttft_slo_ms);
     }},
    {"model", kBoth,
     [](const Json& v, Reading& r) { return short_string(v, "model", r, &Request::model); }},
    {"user", kBoth,
     [](const Json& v, Reading& r) { return short_string(v, "user", r, &Request::user); }},
    {"request_id", kBoth,
     [](const Json& v, Reading& r) {
       return short_string(v, "request_id", r, &Request::request_id);
     }},
    {"cache_salt", kBoth,
     [](const Json& v, Reading& r) {
       return short_string(v, "cache_salt", r, &Request::cache_salt);
     }},
    {"reasoning_effort", kChat,
     [](const Json& v, Reading& r) {
       return short_string(v, "reasoning_effort", r, &Request::reasoning_effort);
     }},
};

}  // namespace

MaybeError read_fields(const Json& body, const RequestRules& rules, Request& request) {
  for (const BoolField& f : kBools) {
    const Json* value = applies(f.routes, request.route) ? find_member(body, f.name) : nullptr;
    if (!value) continue;
    if (!value->is_boolean()) return wrong_type(f.name, *value, "a boolean");
    request.*f.member = value->get<bool>();
  }
  for (const NumberField& f : kNumbers) {
    const Json* value = find_member(body, f.name);
    if (!value) continue;
    if (auto error =
            read_number(*value, f.name, f.min, f.max, f.legal, f.above_min, request.*f.member))
      return error;
  }
  Reading reading{rules, request};
  for (const SpecialField& f : kSpecial) {
    const Json* value = applies(f.routes, request.route) ? find_member(body, f.name) : nullptr;
    if (!value) continue;
    if (auto error = f.read(*value, reading)) return error;
  }
  return std::nullopt;
}

Result<std::vector<Token>> read_token_ids(const Json& value, std::string_view param,
                                          const RequestRules& rules) {
  const std::string legal = "a list of token ids below " + std::to_string(rules.vocab);
  if (!value.is_array()) return wrong_type(param, value, legal);
  std::vector<Token> ids;
  ids.reserve(value.size());
  for (const Json& element : value) {
    if (!element.is_number()) return wrong_type(param, element, legal);
    const std::optional<int64_t> id = as_integer(element);
    if (!id || *id < 0 || *id >= rules.vocab) return out_of_range(param, element, legal);
    ids.push_back(static_cast<Token>(*id));
  }
  return ids;
}

}  // namespace millrace::api
