// Sessions: one generating HTTP request each, from its body to its last byte. A session is opened
// when the request has been read, prepares its text on the text pool, submits to the engine, turns
// the engine's events into the answer, and is kept until the engine has ended all its requests,
// even when the client is long gone. All state belongs to the io thread; only the preparation runs
// elsewhere and shares nothing with it.
//
//   preparing ──ok──► running ──answer complete──► draining ──engine done──► erased
//       └── error, client gone: erased      (client gone: cancels, and drains at once)
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/client/client.h"
#include "server/app/generation.h"
#include "server/app/log.h"
#include "server/app/metrics.h"
#include "server/app/text_pool.h"
#include "server/net/exchange.h"

namespace millrace::app {

// Made before any session and outliving all of them.
struct SessionServices {
  Metrics& metrics;
  Logger& logger;
  TextPool& text_pool;
  // Runs work on the io thread.
  std::function<void(std::function<void()>)> post;
  // Answers with an error and counts it. The id may be empty; the client's own is echoed anyway.
  std::function<void(net::Exchange&, const std::string& route, const std::string& request_id,
                     const api::Error&)>
      answer_error;
  std::optional<uint64_t> default_seed;
  double stream_comment_seconds = 15.0;
};

class SessionTable {
 public:
  explicit SessionTable(SessionServices services);
  ~SessionTable();

  // The model and the engine that later sessions use. `context` and `engine` outlive the table.
  void bind(const GenerationContext& context, EngineClient& engine);

  void open(std::shared_ptr<net::Exchange> exchange, api::Route route, std::string route_name,
            std::string request_id);
  void on_events(const std::vector<TokenEvent>& events);
  // Begins streams that have been silent for so long that a proxy might give up.
  void tick(TimePoint now);

  // Sessions whose answer is not complete.
  int64_t open_answers() const;
  size_t size() const { return sessions_.size(); }
  // Ends those that have not had a token yet, with 503 where no byte has been sent.
  void refuse_unstarted();
  // Ends every answer that is not complete, with a retryable error.
  void fail_all(const std::string& why);

 private:
  struct Session;
  struct Choice;

  void on_prepared(uint64_t key, api::Result<Prepared> prepared);
  void submit(Session& session);
  void on_disconnect(uint64_t key, net::Disconnect reason);
  void note_token(Session& session, const TokenEvent& event, TimePoint now);
  void fail(Session& session, api::Error error);
  // Hands over what the generation has put out, cancels what it no longer wants, completes the
  // answer and erases the session when nothing more can come.
  void advance(Session& session);
  void begin_stream(Session& session);
  void complete(Session& session);
  void account(Session& session, TimePoint now);
  void log_end(const Session& session, const RequestRecord& record) const;
  void erase(uint64_t key);

  SessionServices services_;
  const GenerationContext* context_ = nullptr;
  EngineClient* engine_ = nullptr;
  uint64_t next_key_ = 1;
  RequestId next_request_ = 1;
  std::string answer_prefix_;  // makes answer ids of two server processes differ
  std::unordered_map<uint64_t, std::unique_ptr<Session>> sessions_;
  std::unordered_map<RequestId, uint64_t> by_request_;
};

}  // namespace millrace::app
