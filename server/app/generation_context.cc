#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "server/api/models_list.h"
#include "server/api/request.h"
#include "server/api/response.h"
#include "server/app/generation.h"

namespace millrace::app {
namespace {

using Json = nlohmann::ordered_json;
using api::Error;
using api::GenerationRequest;

constexpr int64_t kDefaultCompletionTokens = 16;
constexpr float kLeastTemperature = 1e-5f;  // below it the division would overflow: greedy

void read_default(const Json& config, const char* name, double min, double max, double& out) {
  const auto found = config.find(name);
  if (found == config.end() || !found->is_number()) return;
  const double value = found->get<double>();
  if (value >= min && value <= max) out = value;
}

// The sampling defaults that a checkpoint's generation_config.json carries; what is out of range is
// left at the usual default.
api::GenerationDefaults defaults_of(const std::string& generation_config) {
  api::GenerationDefaults d;
  const Json config = Json::parse(generation_config, nullptr, false);
  if (!config.is_object()) return d;
  read_default(config, "temperature", 0.0, 2.0, d.temperature);
  read_default(config, "top_p", 0.0, 1.0, d.top_p);
  read_default(config, "min_p", 0.0, 1.0, d.min_p);
  read_default(config, "typical_p", 1e-6, 1.0, d.typical_p);
  read_default(config, "repetition_penalty", 1e-6, 2.0, d.repetition_penalty);
  double top_k = 0.0;
  read_default(config, "top_k", 0.0, 1e9, top_k);
  d.top_k = static_cast<int64_t>(top_k);
  const auto most = config.find("max_new_tokens");
  if (most != config.end() && most->is_number_integer() && most->get<int64_t>() > 0)
    d.max_tokens = most->get<int64_t>();
  return d;
}

uint64_t random_seed() {
  thread_local std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n\r\f\v";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

// Where the last message's text stands in the rendered one: its last occurrence that is data (the
// same letters may stand in the markup after it). npos if it does not.
size_t find_prefill(const RenderedText& rendered, std::string_view core) {
  for (auto range = rendered.user_ranges.rbegin(); range != rendered.user_ranges.rend(); ++range) {
    const std::string_view data =
        std::string_view(rendered.text).substr(range->begin, range->end - range->begin);
    const size_t at = data.rfind(core);
    if (at != std::string_view::npos) return range->begin + at;
  }
  return std::string::npos;
}

// Cuts the rendered text after the last message's content, so that the answer continues it. The
// prompt ends with exactly that content, its trailing blanks included even where the template
// trims them; leading blanks are as the template writes them.
std::optional<Error> cut_after_prefill(const Json& messages, RenderedText& rendered) {
  const std::string& content = messages.back()["content"].get_ref<const std::string&>();
  const std::string_view core = trimmed(content);
  const size_t at = core.empty() ? std::string::npos : find_prefill(rendered, core);
  if (at == std::string::npos) {
    return api::invalid_field("continue_final_message",
                              "continue_final_message: the last message's content is empty, or "
                              "the chat template does not write it as it is.");
  }
  const size_t end = at + core.size();
  rendered.text.resize(end);
  const size_t core_end = static_cast<size_t>(core.data() - content.data()) + core.size();
  rendered.text.append(content, core_end);
  std::erase_if(rendered.user_ranges, [&](const ByteRange& r) { return r.begin >= end; });
  rendered.user_ranges.back().end = rendered.text.size();
  return std::nullopt;
}

Json template_context(const GenerationRequest& r, const ContextOptions& options) {
  Json context = Json::object();
  for (const auto& [name, text] : options.special_token_texts) context[name] = text;
  for (const auto& [name, value] : r.chat_template_kwargs.items()) context[name] = value;
  if (!r.reasoning_effort.empty()) context["reasoning_effort"] = r.reasoning_effort;
  context["messages"] = r.messages;
  context["tools"] = r.tools;
  context["documents"] = nullptr;
  context["add_generation_prompt"] = r.add_generation_prompt;
  return context;
}

Error too_long(const std::string& prompt_field, int64_t prompt, int64_t answer, int64_t limit,
               const char* what) {
  return {.code = "context_length_exceeded",
          .param = prompt_field,
          .message = "This model's " + std::string(what) + " is " + std::to_string(limit) +
                     " tokens, but the request needs " + std::to_string(prompt + answer) + " (" +
                     std::to_string(prompt) + " in the prompt, " + std::to_string(answer) +
                     " for the answer)."};
}

}  // namespace

int64_t Prepared::prompt_tokens() const {
  int64_t total = 0;
  for (const PreparedPrompt& p : prompts) total += static_cast<int64_t>(p.tokens.size());
  return total;
}

GenerationContext::GenerationContext(ContextOptions options, const Tokenizer& tokenizer,
                                     const ChatTemplate* chat_template, Status template_error)
    : options_(std::move(options)),
      tokenizer_(tokenizer),
      chat_template_(chat_template),
      template_error_(std::move(template_error)),
      rules_(std::make_unique<api::RequestRules>()),
      holes_(tokenizer.holes()) {
  rules_->limits = options_.limits;
  rules_->defaults = defaults_of(options_.generation_config);
  rules_->max_model_len = options_.max_model_len;
  rules_->vocab = options_.vocab;
  rules_->allow_request_chat_template = options_.allow_request_chat_template;
  rules_->tool_arguments_as_objects = !chat_template_ || chat_template_->wants_argument_objects();
}

GenerationContext::~GenerationContext() = default;

StatusOr<std::unique_ptr<GenerationContext>> GenerationContext::create(
    ContextOptions options, const Tokenizer& tokenizer, const ChatTemplate* chat_template,
    Status template_error) {
  if (options.model_names.empty())
    return absl::InvalidArgumentError("a served model needs at least one name");
  return std::unique_ptr<GenerationContext>(new GenerationContext(
      std::move(options), tokenizer, chat_template, std::move(template_error)));
}

// The empty name stands for the default model.
std::optional<Error> GenerationContext::check_model(std::string_view name) const {
  const std::vector<std::string>& names = options_.model_names;
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end())
    return std::nullopt;
  return api::unknown_model(name, names);
}

std::optional<Error> GenerationContext::check_token_ids(const std::string& param,
                                                        const std::vector<Token>& tokens) const {
  for (const Token token : tokens) {
    const bool beyond = token >= tokenizer_.size();
    if (!beyond && !std::binary_search(holes_.begin(), holes_.end(), token)) continue;
    return api::invalid_field(
        param, param + ": " + std::to_string(token) + " is no token of this model's vocabulary.");
  }
  return std::nullopt;
}

api::Result<PreparedPrompt> GenerationContext::render_chat(const GenerationRequest& r) const {
  std::unique_ptr<ChatTemplate> own;
  const ChatTemplate* chat_template = chat_template_;
  if (!r.chat_template.empty()) {
    auto compiled = ChatTemplate::compile(r.chat_template);
    if (!compiled.ok())
      return api::invalid_field("chat_template", status_message(compiled.status()));
    own = *std::move(compiled);
    chat_template = own.get();
  }
  if (!chat_template) return api::invalid_field("messages", status_message(template_error_));
  StatusOr<RenderedText> rendered =
      chat_template->render(template_context(r, options_), options_.render_limits);
  if (!rendered.ok()) return api::invalid_field("messages", status_message(rendered.status()));
  if (r.continue_final_message) {
    if (auto error = cut_after_prefill(r.messages, *rendered)) return *std::move(error);
  }
  if (r.content_special_tokens) rendered->user_ranges.clear();
  return PreparedPrompt{
      .tokens = tokenizer_.encode(rendered->text, {.add_special_tokens = r.add_special_tokens,
                                                   .parse_special = true,
                                                   .literal = rendered->user_ranges})};
}

api::Result<std::vector<PreparedPrompt>> GenerationContext::make_prompts(
    const GenerationRequest& r) const {
  std::vector<PreparedPrompt> prompts;
  if (r.route == api::Route::chat) {
    api::Result<PreparedPrompt> prompt = render_chat(r);
    if (!prompt.ok()) return prompt.error();
    prompts.push_back(*std::move(prompt));
  }
  for (const api::Prompt& prompt : r.prompts) {
    if (const auto* ids = std::get_if<std::vector<Token>>(&prompt)) {
      if (auto error = check_token_ids("prompt", *ids)) return *std::move(error);
      prompts.push_back({.tokens = *ids});
      continue;
    }
    const std::string& text = std::get<std::string>(prompt);
    PreparedPrompt made{.tokens =
                            tokenizer_.encode(text, {.add_special_tokens = r.add_special_tokens})};
    const std::optional<Token> bos = tokenizer_.bos();
    made.hide_first = bos && !made.tokens.empty() && made.tokens[0] == *bos &&
                      !text.starts_with(tokenizer_.token_text(*bos));
    prompts.push_back(std::move(made));
  }
  for (const PreparedPrompt& prompt : prompts) {
    if (prompt.tokens.empty())
      return api::invalid_field(r.route == api::Route::chat ? "messages" : "prompt",
                                "The prompt has no tokens.");
  }
  return prompts;
}

// The answer's room: what was asked for, else what the context and the cache leave.
std::optional<Error> GenerationContext::fit(const GenerationRequest& r, Prepared& prepared) const {
  const std::string field = r.route == api::Route::chat ? "messages" : "prompt";
  const int64_t pool =
      options_.max_request_tokens > 0 ? options_.max_request_tokens : options_.max_model_len;
  const int64_t limit = std::min(options_.max_model_len, pool);
  // A default is a cap: only what the request itself asks for has to fit.
  std::optional<int64_t> cap = r.max_tokens ? r.max_tokens : rules_->defaults.max_tokens;
  if (!cap && r.route == api::Route::completions) cap = kDefaultCompletionTokens;
  const int64_t least = r.max_tokens.value_or(1);
  int64_t longest = 0;
  for (PreparedPrompt& prompt : prepared.prompts) {
    if (r.truncate_prompt_tokens) {
      const int64_t answer = r.max_tokens.value_or(cap.value_or(1));
      const int64_t keep = *r.truncate_prompt_tokens < 0 ? std::max<int64_t>(1, limit - answer)
                                                         : *r.truncate_prompt_tokens;
      const auto size = static_cast<int64_t>(prompt.tokens.size());
      if (size > keep) {
        prompt.tokens.erase(prompt.tokens.begin(), prompt.tokens.begin() + (size - keep));
        prompt.hide_first = false;
      }
    }
    longest = std::max(longest, static_cast<int64_t>(prompt.tokens.size()));
  }
  if (longest + least > options_.max_model_len)
    return too_long(field, longest, least, options_.max_model_len, "maximum context length");
  if (longest + least > pool) return too_long(field, longest, least, pool, "KV cache capacity");
  const int64_t answer = std::min(limit - longest, cap.value_or(limit));
  if (r.min_tokens > answer)
    return api::invalid_field("min_tokens", "min_tokens is " + std::to_string(r.min_tokens) +
                                                ", but the answer can have at most " +
                                                std::to_string(answer) + " tokens.");
  prepared.stop.max_tokens = static_cast<int32_t>(answer);
  prepared.stop.min_tokens = static_cast<int32_t>(r.min_tokens);
  return std::nullopt;
}

// A word is written with or without a space in front of it, which gives other tokens.
std::vector<std::vector<Token>> GenerationContext::bad_word_tokens(
    const std::vector<std::string>& words) const {
  std::vector<std::vector<Token>> out;
  for (const std::string& word : words) {
    const size_t begin = word.find_first_not_of(' ');
    const std::string bare = begin == std::string::npos ? word : word.substr(begin);
    for (const std::string& form : {word, ' ' + bare}) {
      std::vector<Token> tokens = tokenizer_.encode(form, {.add_special_tokens = false});
      if (!tokens.empty() && std::find(out.begin(), out.end(), tokens) == out.end())
        out.push_back(std::move(tokens));
    }
  }
  return out;
}

namespace {

SamplingParams sampling_of(const GenerationRequest& r, uint64_t seed) {
  SamplingParams s;
  s.temperature = static_cast<float>(r.temperature);
  if (s.temperature < kLeastTemperature) s.temperature = 0.0f;
  s.top_p = static_cast<float>(r.top_p);
  s.min_p = static_cast<float>(r.min_p);
  s.typical_p = static_cast<float>(r.typical_p);
  s.top_k = static_cast<int32_t>(std::clamp<int64_t>(r.top_k, 0, INT32_MAX));
  s.repetition_penalty = static_cast<float>(r.repetition_penalty);
  s.presence_penalty = static_cast<float>(r.presence_penalty);
  s.frequency_penalty = static_cast<float>(r.frequency_penalty);
  s.seed = seed;
  if (r.logprobs) s.logprobs = static_cast<int32_t>(*r.logprobs);
  if (r.best_of > r.n) s.logprobs = std::max(s.logprobs, 0);  // the ranking needs scores
  if (r.echo && r.logprobs) s.prompt_logprobs = static_cast<int32_t>(*r.logprobs);
  if (r.prompt_logprobs)
    s.prompt_logprobs = std::max(s.prompt_logprobs, static_cast<int32_t>(*r.prompt_logprobs));
  s.logit_bias = r.logit_bias;
  s.allowed_tokens = r.allowed_token_ids;
  return s;
}

}  // namespace

api::Result<Prepared> GenerationContext::prepare(api::Route route, std::string_view body,
                                                 std::optional<uint64_t> default_seed) const {
  api::Result<GenerationRequest> parsed = api::parse_generation_request(route, body, *rules_);
  if (!parsed.ok()) return parsed.error();
  GenerationRequest& r = *parsed;
  if (auto error = check_model(r.model)) return *std::move(error);
  if (auto error = check_token_ids("allowed_token_ids", r.allowed_token_ids))
    return *std::move(error);

  Prepared p;
  api::Result<std::vector<PreparedPrompt>> prompts = make_prompts(r);
  if (!prompts.ok()) return prompts.error();
  p.prompts = *std::move(prompts);
  if (auto error = fit(r, p)) return *std::move(error);
  const uint64_t seed = r.seed         ? static_cast<uint64_t>(*r.seed)
                        : default_seed ? *default_seed
                                       : random_seed();
  p.sampling = sampling_of(r, seed);
  p.sampling.bad_words = bad_word_tokens(r.bad_words);
  p.stop.ignore_eos = r.ignore_eos;
  p.stop.stop_tokens = r.stop_token_ids;
  p.stop_strings = std::move(r.stop);
  p.model = r.model.empty() ? options_.model_names.front() : r.model;
  p.request_id = std::move(r.request_id);
  p.cache_salt = std::move(r.cache_salt);
  p.route = route;
  p.n = static_cast<int>(r.n);
  p.best_of = static_cast<int>(r.best_of);
  p.priority = static_cast<int32_t>(r.priority);
  p.timeout_ms = r.timeout_ms;
  p.echo = r.echo;
  p.stream = r.stream;
  p.include_usage = r.include_usage;
  p.continuous_usage = r.continuous_usage_stats;
  p.return_token_ids = r.return_token_ids;
  p.return_prompt_logprobs = r.prompt_logprobs.has_value();
  p.include_stop_string = r.include_stop_str_in_output;
  p.skip_special_tokens = r.skip_special_tokens;
  p.spaces_between_special_tokens = r.spaces_between_special_tokens;
  if (r.logprobs) p.logprobs = static_cast<int>(*r.logprobs);
  return p;
}

api::Result<std::string> GenerationContext::tokenize(std::string_view body) const {
  api::Result<api::TokenizeRequest> parsed = api::parse_tokenize_request(body, *rules_);
  if (!parsed.ok()) return parsed.error();
  if (auto error = check_model(parsed->request.model)) return *std::move(error);
  api::Result<std::vector<PreparedPrompt>> prompts = make_prompts(parsed->request);
  if (!prompts.ok()) return prompts.error();
  const std::vector<Token>& tokens = prompts->front().tokens;
  Json out = {
      {"count", tokens.size()}, {"max_model_len", options_.max_model_len}, {"tokens", tokens}};
  if (parsed->return_token_strings) {
    Json texts = Json::array();
    for (const Token token : tokens) texts.push_back(std::string(tokenizer_.token_text(token)));
    out["token_strs"] = std::move(texts);
  }
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

api::Result<std::string> GenerationContext::detokenize(std::string_view body) const {
  api::Result<api::DetokenizeRequest> parsed = api::parse_detokenize_request(body, *rules_);
  if (!parsed.ok()) return parsed.error();
  if (auto error = check_model(parsed->model)) return *std::move(error);
  const Json out = {{"prompt", tokenizer_.decode(parsed->tokens, false)}};
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string GenerationContext::models_json() const {
  return api::models_json(options_.model_names,
                          {options_.root, options_.created, options_.max_model_len});
}

api::Result<std::string> GenerationContext::model_json(std::string_view name) const {
  if (name.empty()) return api::unknown_model(name, options_.model_names);
  if (auto error = check_model(name)) return *std::move(error);
  return api::model_json(name, {options_.root, options_.created, options_.max_model_len});
}

}  // namespace millrace::app
