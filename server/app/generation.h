// The socket-free core of every generating route, shared by HTTP, the terminal chat and batch.
//
// - GenerationContext: what is fixed, as tokenizer, template, names and limits. Immutable; any
//   number of (text) threads may call it.
// - Prepared: one valid request, with token ids and rules, everything checked. Moved on.
// - Generation: one request's answer while it is made. One owner, one thread (io).
//
// How a caller uses it:
// 1. context.prepare(route, body) on a text thread; an error is answered before any header.
// 2. Generation g(context, *std::move(prepared), {id, created}), and each of
//    g.take_requests(first_id, now) to the engine; g.fail(error) if the engine refuses one.
// 3. On each TokenEvent of those ids g.on_event(event); then cancel every id of g.take_cancels(),
//    and send g.take_output() if it streams.
// 4. Once g.finished(): g.error() or g.whole_answer().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "server/api/error.h"
#include "server/api/limits.h"
#include "server/api/response.h"
#include "server/api/route.h"

namespace millrace::api {
struct GenerationRequest;
struct RequestRules;
}  // namespace millrace::api

namespace millrace::app {

struct ContextOptions {
  std::vector<std::string> model_names;  // at least one; the first is the default
  std::string root;                      // the checkpoint, as /v1/models shows it
  int64_t created = 0;                   // unix seconds, as /v1/models shows it
  std::string system_fingerprint;
  int64_t max_model_len = 0;
  int64_t max_request_tokens = 0;  // what an empty KV pool can hold for one request; 0: any
  int64_t vocab = 0;               // rows of logits
  std::vector<Token> eos_tokens;
  std::string generation_config;  // JSON text or empty; unknown members are ignored
  std::vector<std::pair<std::string, std::string>> special_token_texts;
  bool allow_request_chat_template = false;
  api::Limits limits;
  RenderLimits render_limits;
};

// The parts of an answer that generation does not change.
struct PreparedPrompt {
  std::vector<Token> tokens;
  bool hide_first = false;  // a BOS that the tokenizer added: never part of an echoed text
};

struct Prepared {
  // Not copied per choice until the requests are taken.
  std::vector<PreparedPrompt> prompts;
  SamplingParams sampling;
  StopRules stop;
  std::vector<std::string> stop_strings;
  std::string model;  // as the answer names it
  std::string request_id, cache_salt;
  api::Route route = api::Route::chat;
  int n = 1;
  int best_of = 1;
  int32_t priority = 0;
  std::optional<int64_t> timeout_ms;
  bool echo = false;
  bool stream = false, include_usage = false, continuous_usage = false;
  bool return_token_ids = false, return_prompt_logprobs = false;
  bool include_stop_string = false, skip_special_tokens = true,
       spaces_between_special_tokens = true;
  std::optional<int> logprobs;  // alternatives per entry

  int64_t prompt_tokens() const;
  size_t num_requests() const { return prompts.size() * static_cast<size_t>(best_of); }
};

class GenerationContext {
 public:
  // `tokenizer` and `chat_template` outlive the context. Without a template (null) chat requests
  // are refused with `template_error`.
  static StatusOr<std::unique_ptr<GenerationContext>> create(ContextOptions options,
                                                             const Tokenizer& tokenizer,
                                                             const ChatTemplate* chat_template,
                                                             Status template_error);
  ~GenerationContext();

  // Everything that can be checked is checked here. `default_seed` replaces the random seed of a
  // request that has none.
  api::Result<Prepared> prepare(api::Route route, std::string_view body,
                                std::optional<uint64_t> default_seed = std::nullopt) const;
  // Bodies of POST /tokenize and /detokenize.
  api::Result<std::string> tokenize(std::string_view body) const;
  api::Result<std::string> detokenize(std::string_view body) const;
  // Bodies of GET /v1/models and /v1/models/{id}.
  std::string models_json() const;
  api::Result<std::string> model_json(std::string_view name) const;

  const ContextOptions& options() const { return options_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  GenerationContext(ContextOptions options, const Tokenizer& tokenizer,
                    const ChatTemplate* chat_template, Status template_error);
  api::Result<std::vector<PreparedPrompt>> make_prompts(
      const api::GenerationRequest& request) const;
  api::Result<PreparedPrompt> render_chat(const api::GenerationRequest& request) const;
  std::optional<api::Error> check_model(std::string_view name) const;
  std::optional<api::Error> check_token_ids(const std::string& param,
                                            const std::vector<Token>& tokens) const;
  std::optional<api::Error> fit(const api::GenerationRequest& request, Prepared& prepared) const;
  std::vector<std::vector<Token>> bad_word_tokens(const std::vector<std::string>& words) const;

  ContextOptions options_;
  const Tokenizer& tokenizer_;
  const ChatTemplate* chat_template_;
  Status template_error_;
  std::unique_ptr<api::RequestRules> rules_;
  std::vector<Token> holes_;  // ascending ids without a token
};

struct AnswerIdentity {
  std::string id;  // e.g. "chatcmpl-..."
  int64_t created = 0;
  bool report_cached_tokens = true;  // off where answers must not depend on what ran before
};

class Generation {
 public:
  Generation(const GenerationContext& context, Prepared prepared, AnswerIdentity identity);
  ~Generation();
  Generation(Generation&&) noexcept;
  Generation& operator=(Generation&&) noexcept;

  bool streaming() const;
  // The engine requests, with ids first_id, first_id + 1, ... (num_requests() of them). Once.
  std::vector<Request> take_requests(RequestId first_id, TimePoint now);
  size_t num_requests() const;

  // Events of this answer's ids, in order. Those after a choice has ended are ignored.
  void on_event(const TokenEvent& event);
  // Ends the answer with an error (a refused submit, a stopping engine); the other requests are to
  // be cancelled (take_cancels).
  void fail(api::Error error);
  // Streams only: from now on the response has begun, an error is an event. Called by the caller
  // that must send headers before the first token; otherwise the first token does it.
  void start_stream();

  // Streams: bytes to send now, moved out; empty while nothing has begun.
  std::string take_output();
  // Engine requests whose further output nobody wants.
  std::vector<RequestId> take_cancels();

  bool finished() const;  // the answer is complete: nothing more will be put out
  bool drained() const;   // the engine has ended every request: the ids are free
  // Set if the answer failed. A stream that had begun has put out the error event itself; otherwise
  // nothing was put out and the caller answers with this.
  const std::optional<api::Error>& error() const;
  std::string whole_answer() const;  // not for streams; finished() and no error

  api::Usage usage() const;
  const Prepared& request() const;
  const std::string& id() const;
  // stop, length, abort, error or deadline of each engine request that has ended, in order of
  // index.
  std::vector<std::string> finish_reasons() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::app
