#include "server/app/session.h"

#include <algorithm>
#include <cstdio>
#include <random>

namespace millrace::app {

using net::Disconnect;
using net::HttpResponse;

namespace {

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string random_hex() {
  std::random_device device;
  char text[24];
  std::snprintf(text, sizeof(text), "%08x%08x", device(), device());
  return text;
}

api::Error retry_later(std::string message) {
  return {.http_status = 503,
          .type = "service_unavailable",
          .code = "server_shutting_down",
          .message = std::move(message)};
}

const char* disconnect_name(Disconnect reason) {
  switch (reason) {
    case Disconnect::client_gone: return "client_gone";
    case Disconnect::stalled: return "client_stalled";
    case Disconnect::overflow: return "client_too_slow";
    case Disconnect::stopped: return "server_stopped";
  }
  return "client_gone";
}

}  // namespace

// What is known about one engine request of a session.
struct SessionTable::Choice {
  int64_t tokens = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  bool scheduled = false;
  TimePoint last_token;
};

struct SessionTable::Session {
  uint64_t key = 0;
  std::shared_ptr<net::Exchange> exchange;
  std::string route_name, request_id;
  api::Route route = api::Route::chat;
  TimePoint received, submitted, first_token, last_token;

  std::optional<Generation> generation;
  RequestId first_request = 0;
  std::vector<Choice> choices;
  size_t unfinished = 0;  // engine requests whose last event has not come

  bool accepted = false;  // the engine took its requests
  bool stream_begun = false;
  bool answered = false;  // the answer is complete, or nobody waits for it
  bool got_token = false;
  bool deadline = false;
  double queue_seconds = 0.0;
  const char* client_end = "";  // how the client left before the answer was complete
};

SessionTable::SessionTable(SessionServices services)
    : services_(std::move(services)), answer_prefix_(random_hex()) {}

SessionTable::~SessionTable() = default;

void SessionTable::bind(const GenerationContext& context, EngineClient& engine) {
  context_ = &context;
  engine_ = &engine;
}

void SessionTable::open(std::shared_ptr<net::Exchange> exchange, api::Route route,
                        std::string route_name, std::string request_id) {
  const uint64_t key = next_key_++;
  auto session = std::make_unique<Session>();
  session->key = key;
  session->exchange = std::move(exchange);
  session->route = route;
  session->route_name = std::move(route_name);
  session->request_id = std::move(request_id);
  session->received = session->exchange->request().received;
  session->exchange->on_disconnect([this, key](Disconnect reason) { on_disconnect(key, reason); });

  // The job holds the exchange, whose request never changes, and not the session.
  const bool queued = services_.text_pool.try_run([this, key, route, exchange = session->exchange,
                                                   context = context_, post = services_.post,
                                                   seed = services_.default_seed]() mutable {
    auto prepared = std::make_shared<api::Result<Prepared>>(
        context->prepare(route, exchange->request().body, seed));
    // The exchange goes back to the io thread before its last owner may drop it.
    post([this, key, prepared, exchange = std::move(exchange)] {
      on_prepared(key, std::move(*prepared));
    });
  });
  Session& opened = *session;
  sessions_.emplace(key, std::move(session));
  if (!queued) {
    services_.metrics.rejected("text_queue");
    fail(opened, {.http_status = 503,
                  .type = "service_unavailable",
                  .code = "text_queue_full",
                  .message = "Too many requests wait to be read. Try again shortly."});
  }
}

void SessionTable::on_prepared(uint64_t key, api::Result<Prepared> prepared) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return;
  Session& session = *found->second;
  if (!prepared.ok()) return fail(session, prepared.error());

  const std::string id = (session.route == api::Route::chat ? "chatcmpl-" : "cmpl-") +
                         answer_prefix_ + std::to_string(key);
  session.generation.emplace(*context_, *std::move(prepared),
                             AnswerIdentity{.id = id, .created = unix_seconds()});
  if (session.request_id.empty()) {
    const std::string& asked = session.generation->request().request_id;
    session.request_id = asked.empty() ? id : asked;
  }
  submit(session);
}

void SessionTable::submit(Session& session) {
  const TimePoint now = Clock::now();
  session.submitted = now;
  session.first_request = next_request_;
  next_request_ += session.generation->num_requests();
  std::vector<Request> requests = session.generation->take_requests(session.first_request, now);
  session.choices.resize(requests.size());
  for (Request& request : requests) {
    const RequestId id = request.id;
    session.choices[id - session.first_request].prompt_tokens =
        static_cast<int64_t>(request.prompt.size());
    by_request_.emplace(id, session.key);
    const Status status = engine_->submit(std::move(request));
    if (status.ok()) {
      if (!session.accepted) services_.metrics.request_accepted();
      session.accepted = true;
      ++session.unfinished;
      continue;
    }
    // The engine sends no event for what it refused; those that it took are cancelled.
    for (size_t i = id - session.first_request; i < session.choices.size(); ++i) {
      by_request_.erase(session.first_request + i);
    }
    session.choices.resize(id - session.first_request);
    if (absl::IsResourceExhausted(status)) services_.metrics.rejected("engine_queue");
    if (absl::IsUnavailable(status)) services_.metrics.rejected("engine_stopped");
    return fail(session, api::error_from_status(status));
  }
}

void SessionTable::on_events(const std::vector<TokenEvent>& events) {
  const TimePoint now = Clock::now();
  std::vector<uint64_t> touched;
  for (const TokenEvent& event : events) {
    const auto found = by_request_.find(event.id);
    if (found == by_request_.end()) continue;
    Session& session = *sessions_.at(found->second);
    note_token(session, event, now);
    session.generation->on_event(event);
    if (touched.empty() || touched.back() != session.key) touched.push_back(session.key);
    if (event.finish == Finish::none) continue;
    by_request_.erase(found);
    --session.unfinished;
  }
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  for (uint64_t key : touched) {
    const auto found = sessions_.find(key);
    if (found != sessions_.end()) advance(*found->second);
  }
}

void SessionTable::note_token(Session& session, const TokenEvent& event, TimePoint now) {
  Choice& choice = session.choices[event.id - session.first_request];
  if (event.cached_tokens >= 0 && !choice.scheduled) {
    choice.scheduled = true;
    choice.cached_tokens = event.cached_tokens;
    session.queue_seconds = std::max(session.queue_seconds, double{event.queue_seconds});
  }
  if (event.finish == Finish::deadline) session.deadline = true;
  if (event.token < 0) return;
  if (!session.got_token) {
    session.got_token = true;
    session.first_token = now;
    services_.metrics.time_to_first_token(seconds_between(session.received, now));
  }
  if (choice.tokens > 0) {
    services_.metrics.inter_token(seconds_between(choice.last_token, now));
  }
  choice.last_token = session.last_token = now;
  ++choice.tokens;
}

void SessionTable::advance(Session& session) {
  Generation& generation = *session.generation;
  for (RequestId id : generation.take_cancels()) engine_->cancel(id);
  if (!session.answered && generation.streaming() && !session.exchange->congested()) {
    std::string output = generation.take_output();
    if (!output.empty()) {
      begin_stream(session);
      session.exchange->write(output);
    }
  }
  if (!session.answered && generation.finished()) complete(session);
  if (session.answered && session.unfinished == 0) {
    if (session.accepted) account(session, Clock::now());
    erase(session.key);
  }
}

void SessionTable::begin_stream(Session& session) {
  if (session.stream_begun) return;
  session.stream_begun = true;
  services_.metrics.http_answered(session.route_name, 200);
  HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = {{"Cache-Control", "no-cache"},
                  {"X-Accel-Buffering", "no"},
                  {"X-Request-Id", session.request_id}};
  session.exchange->begin_stream(std::move(head));
  session.exchange->on_writable([this, key = session.key] {
    const auto found = sessions_.find(key);
    if (found != sessions_.end()) advance(*found->second);
  });
}

void SessionTable::complete(Session& session) {
  Generation& generation = *session.generation;
  if (session.stream_begun) {
    // What was held back while the client read slowly is part of the answer too.
    session.exchange->write(generation.take_output());
    session.exchange->end_stream(generation.error().has_value());
  } else if (generation.error()) {
    services_.answer_error(*session.exchange, session.route_name, session.request_id,
                           *generation.error());
  } else if (generation.streaming()) {
    begin_stream(session);
    session.exchange->write(generation.take_output());
    session.exchange->end_stream(false);
  } else {
    HttpResponse response;
    response.headers = {{"X-Request-Id", session.request_id}};
    response.body = generation.whole_answer();
    services_.metrics.http_answered(session.route_name, 200);
    session.exchange->respond(std::move(response));
  }
  session.answered = true;
}

void SessionTable::fail(Session& session, api::Error error) {
  if (session.generation) {
    session.generation->fail(std::move(error));
    return advance(session);
  }
  services_.answer_error(*session.exchange, session.route_name, session.request_id, error);
  session.answered = true;
  erase(session.key);
}

void SessionTable::on_disconnect(uint64_t key, Disconnect reason) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return;
  Session& session = *found->second;
  if (session.answered) return;
  session.client_end = disconnect_name(reason);
  session.answered = true;
  if (!session.stream_begun) services_.metrics.http_answered(session.route_name, 499);
  if (!session.accepted) {
    services_.logger.log(LogLevel::info, "request",
                         {{"request_id", session.request_id},
                          {"route", session.route_name},
                          {"finish", std::string("abort")},
                          {"client", std::string(session.client_end)}});
    return erase(key);
  }
  for (size_t i = 0; i < session.choices.size(); ++i) {
    const RequestId id = session.first_request + i;
    if (by_request_.count(id) > 0) engine_->cancel(id);
  }
  advance(session);
}

void SessionTable::tick(TimePoint now) {
  for (auto& [key, session] : sessions_) {
    if (session->answered || session->stream_begun || !session->accepted) continue;
    if (!session->generation->streaming() || session->got_token) continue;
    if (seconds_between(session->submitted, now) < services_.stream_comment_seconds) continue;
    session->generation->start_stream();
    begin_stream(*session);
    session->exchange->write(": keepalive\n\n");
  }
}

int64_t SessionTable::open_answers() const {
  return std::count_if(sessions_.begin(), sessions_.end(),
                       [](const auto& entry) { return !entry.second->answered; });
}

void SessionTable::refuse_unstarted() {
  std::vector<uint64_t> keys;
  for (const auto& [key, session] : sessions_) {
    const bool started = std::any_of(session->choices.begin(), session->choices.end(),
                                     [](const Choice& choice) { return choice.scheduled; });
    if (!session->answered && !started) keys.push_back(key);
  }
  for (uint64_t key : keys) {
    fail(*sessions_.at(key), retry_later("The server is shutting down. Send the request again."));
  }
}

void SessionTable::fail_all(const std::string& why) {
  std::vector<uint64_t> keys;
  for (const auto& [key, session] : sessions_) {
    if (!session->answered) keys.push_back(key);
  }
  for (uint64_t key : keys) fail(*sessions_.at(key), retry_later(why));
}

void SessionTable::account(Session& session, TimePoint now) {
  const Generation& generation = *session.generation;
  RequestRecord record;
  for (const Choice& choice : session.choices) {
    record.generated_tokens += choice.tokens;
    record.max_generated_tokens = std::max(record.max_generated_tokens, choice.tokens);
    if (!choice.scheduled) continue;
    record.prompt_tokens += choice.prompt_tokens;
    record.cached_tokens += choice.cached_tokens;
  }
  record.max_tokens = generation.request().stop.max_tokens;
  record.n = generation.request().n;
  record.e2e = std::max(0.0, seconds_between(session.received, now));
  if (session.got_token) {
    const double to_first = seconds_between(session.submitted, session.first_token);
    record.queue = session.queue_seconds;
    record.time_to_first_token = seconds_between(session.received, session.first_token);
    record.prefill = std::max(0.0, to_first - session.queue_seconds);
    record.decode = seconds_between(session.first_token, session.last_token);
    record.inference = *record.prefill + *record.decode;
  }
  if (session.client_end[0] != '\0') {
    record.reason = FinishedReason::abort;
  } else if (generation.error()) {
    record.reason = FinishedReason::error;
  } else {
    const std::vector<std::string> reasons = generation.finish_reasons();
    const bool cut = std::find(reasons.begin(), reasons.end(), "length") != reasons.end();
    record.reason = cut ? FinishedReason::length : FinishedReason::stop;
  }
  if (session.deadline) services_.metrics.deadline_dropped();
  services_.metrics.request_finished(record);
  log_end(session, record);
}

void SessionTable::log_end(const Session& session, const RequestRecord& record) const {
  LogFields fields = {{"request_id", session.request_id},
                      {"route", session.route_name},
                      {"model", session.generation->request().model},
                      {"stream", session.generation->streaming()},
                      {"n", int64_t{record.n}},
                      {"prompt_tokens", record.prompt_tokens},
                      {"cached_tokens", record.cached_tokens},
                      {"generated_tokens", record.generated_tokens},
                      {"finish", std::string(finished_reason_name(record.reason))},
                      {"seconds", record.e2e}};
  if (record.queue) fields.emplace_back("queue_seconds", *record.queue);
  if (record.time_to_first_token) fields.emplace_back("ttft_seconds", *record.time_to_first_token);
  if (session.client_end[0] != '\0') {
    fields.emplace_back("client", std::string(session.client_end));
  } else if (session.generation->error()) {
    fields.emplace_back("error", session.generation->error()->code);
  }
  services_.logger.log(LogLevel::info, "request", fields);
}

void SessionTable::erase(uint64_t key) { sessions_.erase(key); }

}  // namespace millrace::app
