// Service: the server as a whole, without the model's loading and without signals: sockets, routes,
// keys, sessions, metrics, health, and the steps of a drain. Its public methods may be called by
// any thread; all state behind them belongs to the io thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/base/status.h"
#include "engine/client/client.h"
#include "server/app/api_keys.h"
#include "server/app/generation.h"
#include "server/app/health.h"
#include "server/app/log.h"
#include "server/app/metrics.h"
#include "server/net/http_server.h"

namespace millrace::app {

struct ServiceOptions {
  net::ServerOptions http;
  ApiKeys keys;
  HealthOptions health;
  std::optional<uint64_t> seed;  // for requests that have none; absent: random
  int text_threads = 2;
  size_t max_text_jobs = 1024;
  bool metric_aliases = true;
};

class Service {
 public:
  Service(ServiceOptions options, Logger& logger);
  ~Service();  // stop()

  // Opens the port: alive at once, ready after set_ready().
  Status start();
  uint16_t port() const;

  // For the engine, which may end before or after stop() but not after the service.
  EventSink sink();
  void note_load_progress();
  void note_start_phase(std::string phase, double seconds);
  // Both outlive stop().
  void set_ready(const GenerationContext& context, EngineClient& engine, CacheInfo cache);

  // The steps of a drain, in this order. Each returns when it has been carried out.
  void begin_drain();            // not ready, still accepting
  void stop_accepting();         // no new connection; unstarted requests get 503
  int64_t open_answers() const;  // that are not complete yet
  void fail_remaining(const std::string& why);
  // Lets answers that are complete reach their clients, for at most `limit`.
  void wait_until_sent(std::chrono::milliseconds limit);
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::app
