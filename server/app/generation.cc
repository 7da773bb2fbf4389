#include "server/app/generation.h"

#include <algorithm>
#include <numeric>

#include "engine/text/detokenizer.h"
#include "engine/text/stop_matcher.h"
#include "server/api/json_text.h"

namespace millrace::app {
namespace {

using api::Delta;
using api::Error;
using api::LogprobEntry;
using api::ScoredToken;

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

void append(Delta& to, Delta&& from) {
  to.text += from.text;
  std::move(from.logprobs.begin(), from.logprobs.end(), std::back_inserter(to.logprobs));
  to.token_ids.insert(to.token_ids.end(), from.token_ids.begin(), from.token_ids.end());
  to.finish_reason = std::move(from.finish_reason);
  to.stop_reason = std::move(from.stop_reason);
}

bool empty(const Delta& d) {
  return d.text.empty() && d.logprobs.empty() && d.token_ids.empty() && d.finish_reason.empty();
}

// A seed for each choice: the first keeps the request's, the others follow from it.
uint64_t choice_seed(uint64_t seed, int choice) {
  return seed + static_cast<uint64_t>(choice) * 0x9e3779b97f4a7c15u;
}

const char* finish_name(Finish finish) {
  switch (finish) {
    case Finish::stop: return "stop";
    case Finish::length: return "length";
    case Finish::aborted: return "abort";
    case Finish::deadline: return "deadline";
    case Finish::error: return "error";
    case Finish::none: break;
  }
  return "";
}

Error error_of(const TokenEvent& event) {
  if (event.finish == Finish::deadline)
    return {.http_status = 504,
            .type = "timeout_error",
            .code = "deadline_exceeded",
            .message = "The request's time ran out before the answer was complete."};
  if (event.finish == Finish::aborted)
    return {.http_status = 503,
            .type = "service_unavailable",
            .code = "server_shutting_down",
            .message = "The server is shutting down. Send the request again."};
  return {.http_status = 500,
          .type = "server_error",
          .code = "engine_fault",
          .message = "The engine failed on this request: " + event.error + "."};
}

}  // namespace

struct Generation::Impl {
  // One choice of one prompt: one engine request.
  struct Choice {
    Choice(const Tokenizer& tokenizer, const Prepared& p)
        : detokenizer(tokenizer, {p.skip_special_tokens, p.spaces_between_special_tokens, false}),
          stops(p.stop_strings, p.include_stop_string) {}

    Detokenizer detokenizer;
    StopMatcher stops;
    Delta whole;  // answers that do not stream
    std::vector<LogprobEntry> prompt_scores;
    int64_t tokens = 0;
    int64_t cached_tokens = -1;
    int64_t characters = 0;  // of the text so far, for text_offset
    double logprob_sum = 0.0;
    bool opened = false;    // the role has been put out
    bool echoed = false;    // the prompt has been put out
    bool ended = false;     // its text is complete
    bool released = false;  // the engine has sent its last event
    std::string engine_finish;
  };

  Impl(const GenerationContext& c, Prepared p, AnswerIdentity i)
      : context(c), tokenizer(c.tokenizer()), prepared(std::move(p)), identity(std::move(i)) {
    head = {prepared.route, identity.id, identity.created, prepared.model,
            context.options().system_fingerprint};
    shape.logprobs = prepared.logprobs.has_value();
    shape.token_ids = prepared.return_token_ids;
    shape.usage_null = prepared.stream && prepared.include_usage;
    for (size_t k = 0; k < prepared.num_requests(); ++k) {
      choices.emplace_back(tokenizer, prepared);
      if (prepared.stream) writers.emplace_back(head, static_cast<int>(k), shape);
    }
  }

  const PreparedPrompt& prompt_of(size_t k) const {
    return prepared.prompts[k / static_cast<size_t>(prepared.best_of)];
  }
  ScoredToken scored(Token token, float logprob) const {
    return {token, std::string(tokenizer.token_bytes(token)), logprob};
  }
  // The best `count` alternatives of a token; text_offset is where its own text begins.
  LogprobEntry entry(Token token, float logprob, const std::vector<TopLogprob>& top, size_t count,
                     int64_t text_offset) const {
    LogprobEntry e{.chosen = scored(token, logprob), .text_offset = text_offset};
    for (size_t t = 0; t < std::min(count, top.size()); ++t)
      e.top.push_back(scored(top[t].token, top[t].logprob));
    return e;
  }

  const std::vector<Token>* prompt_ids(size_t k) const {
    return prepared.return_token_ids ? &prompt_of(k).tokens : nullptr;
  }
  const api::Usage* chunk_usage() {
    if (!prepared.include_usage || !prepared.continuous_usage) return nullptr;
    running_usage = usage();
    return &*running_usage;
  }

  api::Usage usage() const {
    api::Usage u;
    u.prompt_tokens = prepared.prompt_tokens();
    int64_t cached = 0;
    for (size_t k = 0; k < choices.size(); ++k) {
      u.completion_tokens += choices[k].tokens;
      if (k % static_cast<size_t>(prepared.best_of) == 0)
        cached += std::max<int64_t>(0, choices[k].cached_tokens);
    }
    if (identity.report_cached_tokens) u.cached_tokens = cached;
    return u;
  }

  void put(size_t k, Delta&& delta) {
    if (empty(delta)) return;
    if (!prepared.stream) return append(choices[k].whole, std::move(delta));
    const bool first_of_completion =
        prepared.route == api::Route::completions && !std::exchange(choices[k].opened, true);
    writers[k].write(output, delta, chunk_usage(), first_of_completion ? prompt_ids(k) : nullptr);
    begun = true;
  }

  // The role of a chat answer, before its first text.
  void open(size_t k) {
    if (prepared.route != api::Route::chat || std::exchange(choices[k].opened, true)) return;
    if (!prepared.stream) return;
    writers[k].write_role(output, prompt_ids(k), chunk_usage());
    begun = true;
  }

  void add_prompt_scores(size_t k, const std::vector<PromptScore>& scores) {
    Choice& choice = choices[k];
    if (choice.prompt_scores.empty() && prepared.sampling.prompt_logprobs >= 0) {
      LogprobEntry first{.chosen = scored(prompt_of(k).tokens[0], 0.0f), .has_score = false};
      choice.prompt_scores.push_back(std::move(first));
    }
    const auto count = static_cast<size_t>(std::max(0, prepared.sampling.prompt_logprobs));
    for (const PromptScore& s : scores)
      choice.prompt_scores.push_back(entry(s.token, s.logprob, s.top, count, 0));
  }

  // The prompt's own text and scores, once all of them are known.
  void put_echo(size_t k) {
    Choice& choice = choices[k];
    const PreparedPrompt& prompt = prompt_of(k);
    Detokenizer detokenizer(tokenizer, {false, prepared.spaces_between_special_tokens, true});
    Delta delta;
    const size_t hidden = prompt.hide_first ? 1 : 0;
    for (size_t i = 0; i < prompt.tokens.size(); ++i) {
      const int64_t offset = count_characters(delta.text);
      if (i >= hidden) delta.text += detokenizer.push(prompt.tokens[i]);
      if (!prepared.logprobs || i >= choice.prompt_scores.size()) continue;
      LogprobEntry e = choice.prompt_scores[i];
      e.text_offset = offset;
      if (i < hidden) e.chosen.bytes.clear();
      if (i == hidden) e.chosen.bytes = tokenizer.first_token_bytes(prompt.tokens[i]);
      delta.logprobs.push_back(std::move(e));
    }
    delta.text += detokenizer.finish();
    choice.characters = count_characters(delta.text);
    put(k, std::move(delta));
  }

  bool echo_ready(size_t k, const TokenEvent& event) const {
    if (prepared.sampling.prompt_logprobs < 0) return true;
    return event.finish != Finish::none || event.token >= 0 ||
           choices[k].prompt_scores.size() >= prompt_of(k).tokens.size();
  }

  // True if the token ends the answer and is no part of its text.
  bool is_end_token(const TokenEvent& event) const {
    return event.finish == Finish::stop && !prepared.include_stop_string;
  }

  std::string stop_reason_of(Token token) const {
    const auto& ends = context.options().eos_tokens;
    const bool eos = std::find(ends.begin(), ends.end(), token) != ends.end();
    return eos ? "null" : std::to_string(token);
  }

  // Text of one more token through the detokenizer and the stop strings. True if a stop string
  // ended the choice.
  bool add_text(Choice& choice, std::string&& piece, Delta& delta) {
    choice.characters += count_characters(piece);
    // Before the minimum nothing can end the answer, so nothing of it is held back.
    if (prepared.stop_strings.empty() || choice.tokens <= prepared.stop.min_tokens) {
      delta.text += piece;
      return false;
    }
    StopMatcher::Result result = choice.stops.push(piece);
    delta.text += result.text;
    if (result.matched < 0) return false;
    delta.finish_reason = "stop";
    api::append_json_string(delta.stop_reason,
                            prepared.stop_strings[static_cast<size_t>(result.matched)]);
    return true;
  }

  void add_token(size_t k, const TokenEvent& event) {
    Choice& choice = choices[k];
    ++choice.tokens;
    choice.logprob_sum += event.logprob;
    Delta delta;
    if (prepared.logprobs)
      delta.logprobs.push_back(entry(event.token, event.logprob, event.top,
                                     static_cast<size_t>(*prepared.logprobs), choice.characters));
    if (prepared.return_token_ids) delta.token_ids.push_back(event.token);
    const bool matched =
        !is_end_token(event) && add_text(choice, choice.detokenizer.push(event.token), delta);
    if (matched) {
      choice.ended = true;
      choice.engine_finish = "stop";
      if (event.finish == Finish::none) cancels.push_back(first_id + k);
    } else if (event.finish != Finish::none) {
      finish(choice, event, delta);
    }
    put(k, std::move(delta));
  }

  // The engine says that no more tokens come: what is held goes out.
  void finish(Choice& choice, const TokenEvent& event, Delta& delta) {
    choice.ended = true;
    if (!add_text(choice, choice.detokenizer.finish(), delta)) {
      delta.text += choice.stops.finish();
      delta.finish_reason = finish_name(event.finish);
      delta.stop_reason = event.finish == Finish::stop ? stop_reason_of(event.token) : "null";
    }
  }

  void on_event(const TokenEvent& event) {
    const auto k = static_cast<size_t>(event.id - first_id);
    Choice& choice = choices[k];
    if (event.finish != Finish::none) {
      choice.released = true;
      choice.engine_finish = choice.ended ? "stop" : finish_name(event.finish);
    }
    if (choice.ended || error) return;
    if (event.finish == Finish::aborted || event.finish == Finish::deadline ||
        event.finish == Finish::error)
      return fail(error_of(event));
    if (event.cached_tokens >= 0) choice.cached_tokens = event.cached_tokens;
    add_prompt_scores(k, event.prompt_scores);
    if (prepared.echo && !choice.echoed && echo_ready(k, event)) {
      choice.echoed = true;
      put_echo(k);
    }
    if (event.token >= 0 || event.finish != Finish::none) open(k);
    if (event.token >= 0) {
      add_token(k, event);
    } else if (event.finish != Finish::none) {
      Delta delta;
      finish(choice, event, delta);
      put(k, std::move(delta));
    }
    end_if_complete();
  }

  void end_if_complete() {
    if (complete) return;
    complete = std::all_of(choices.begin(), choices.end(), [](const Choice& c) { return c.ended; });
    if (!complete || !prepared.stream) return;
    if (prepared.include_usage) api::write_usage_chunk(output, head, usage());
    api::write_done(output);
  }

  void fail(Error e) {
    if (error || complete) return;
    if (prepared.stream && begun) api::write_error_event(output, api::error_json(e));
    error = std::move(e);
    complete = true;
    for (size_t k = 0; k < choices.size(); ++k)
      if (!choices[k].released && !choices[k].ended) cancels.push_back(first_id + k);
  }

  // Indices of the choices to return, prompt by prompt: all of them, or the n with the best mean
  // log-probability.
  std::vector<size_t> returned_choices() const {
    std::vector<size_t> all;
    const auto each = static_cast<size_t>(prepared.best_of);
    const auto mean = [&](size_t k) {
      return choices[k].logprob_sum / static_cast<double>(std::max<int64_t>(1, choices[k].tokens));
    };
    for (size_t p = 0; p < prepared.prompts.size(); ++p) {
      std::vector<size_t> own(each);
      std::iota(own.begin(), own.end(), p * each);
      if (prepared.best_of > prepared.n)
        std::stable_sort(own.begin(), own.end(),
                         [&](size_t a, size_t b) { return mean(a) > mean(b); });
      all.insert(all.end(), own.begin(), own.begin() + prepared.n);
    }
    return all;
  }

  std::string whole_answer() const {
    std::vector<api::WholeChoice> whole;
    for (const size_t k : returned_choices()) {
      api::WholeChoice w{.delta = choices[k].whole, .prompt_token_ids = prompt_ids(k)};
      if (prepared.return_prompt_logprobs)
        w.prompt_logprobs_json = api::prompt_logprobs_json(choices[k].prompt_scores);
      whole.push_back(std::move(w));
    }
    return api::whole_answer_json(head, shape, whole, usage());
  }

  const GenerationContext& context;
  const Tokenizer& tokenizer;
  Prepared prepared;
  AnswerIdentity identity;
  api::AnswerHead head;
  api::AnswerShape shape;
  std::vector<api::ChunkWriter> writers;
  std::vector<Choice> choices;
  RequestId first_id = 0;
  std::vector<RequestId> cancels;
  std::string output;
  std::optional<api::Usage> running_usage;
  std::optional<Error> error;
  bool begun = false;     // a stream's response has begun
  bool complete = false;  // nothing more will be put out
};

Generation::Generation(const GenerationContext& context, Prepared prepared, AnswerIdentity identity)
    : impl_(std::make_unique<Impl>(context, std::move(prepared), std::move(identity))) {}
Generation::~Generation() = default;
Generation::Generation(Generation&&) noexcept = default;
Generation& Generation::operator=(Generation&&) noexcept = default;

bool Generation::streaming() const { return impl_->prepared.stream; }
size_t Generation::num_requests() const { return impl_->choices.size(); }

std::vector<Request> Generation::take_requests(RequestId first_id, TimePoint now) {
  Impl& g = *impl_;
  const Prepared& p = g.prepared;
  g.first_id = first_id;
  std::vector<Request> requests;
  for (size_t k = 0; k < g.choices.size(); ++k) {
    Request r;
    r.id = first_id + k;
    r.prompt = g.prompt_of(k).tokens;
    r.sampling = p.sampling;
    r.sampling.seed =
        choice_seed(p.sampling.seed, static_cast<int>(k % static_cast<size_t>(p.best_of)));
    r.stop = p.stop;
    r.priority = p.priority;
    r.cache_salt = p.cache_salt;
    if (p.timeout_ms) r.deadline = now + std::chrono::milliseconds(*p.timeout_ms);
    requests.push_back(std::move(r));
  }
  return requests;
}

void Generation::on_event(const TokenEvent& event) { impl_->on_event(event); }
void Generation::fail(Error error) { impl_->fail(std::move(error)); }
void Generation::start_stream() { impl_->begun = true; }
std::string Generation::take_output() { return std::exchange(impl_->output, {}); }
std::vector<RequestId> Generation::take_cancels() { return std::exchange(impl_->cancels, {}); }
bool Generation::finished() const { return impl_->complete; }

bool Generation::drained() const {
  return std::all_of(impl_->choices.begin(), impl_->choices.end(),
                     [](const Impl::Choice& c) { return c.released; });
}

const std::optional<Error>& Generation::error() const { return impl_->error; }
std::string Generation::whole_answer() const { return impl_->whole_answer(); }
api::Usage Generation::usage() const { return impl_->usage(); }
const Prepared& Generation::request() const { return impl_->prepared; }
const std::string& Generation::id() const { return impl_->identity.id; }

std::vector<std::string> Generation::finish_reasons() const {
  std::vector<std::string> reasons;
  for (const Impl::Choice& c : impl_->choices)
    if (c.released) reasons.push_back(c.engine_finish);
  return reasons;
}

}  // namespace millrace::app
