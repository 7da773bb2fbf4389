#include "server/app/service.h"

#include <atomic>
#include <deque>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "server/api/error.h"
#include "server/app/process_stats.h"
#include "server/app/routes.h"
#include "server/app/session.h"
#include "server/app/text_pool.h"

namespace millrace::app {

using net::Exchange;
using net::HttpRequest;
using net::HttpResponse;

namespace {

constexpr std::chrono::milliseconds kSessionTick{250};
constexpr size_t kMaxRequestIdBytes = 128;
constexpr char kRetryAfterSeconds[] = "1";
constexpr char kRetryAfterStartSeconds[] = "5";

// The client's id if it is harmless to print and to send back, else nothing.
std::string echoed_request_id(const HttpRequest& request) {
  const std::string_view id = request.header("x-request-id");
  if (id.size() > kMaxRequestIdBytes) return {};
  for (char c : id) {
    if (c < 0x21 || c > 0x7e) return {};
  }
  return std::string(id);
}

HttpResponse error_response(const api::Error& error) {
  HttpResponse response;
  response.status = error.http_status;
  response.body = api::error_json(error);
  if (error.http_status == 429 || error.http_status == 503) {
    response.headers.emplace_back("Retry-After", error.code == "model_loading"
                                                     ? kRetryAfterStartSeconds
                                                     : kRetryAfterSeconds);
  }
  if (error.http_status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HttpResponse protocol_error(int status, const std::string& message) {
  api::Error error;
  error.http_status = status;
  if (status >= 500) error.type = "server_error";
  if (status == 413) error.code = "request_too_large";
  if (status == 503) error.code = "too_many_connections";
  error.message = message;
  return error_response(error);
}

api::Error unavailable(std::string code, std::string message) {
  return {.http_status = 503,
          .type = "service_unavailable",
          .code = std::move(code),
          .message = std::move(message)};
}

}  // namespace

struct Service::Impl {
  Impl(ServiceOptions given, Logger& logger);

  void handle(const std::shared_ptr<Exchange>& exchange);
  void dispatch(const Route& route, const std::shared_ptr<Exchange>& exchange);
  void answer(Exchange& exchange, std::string_view route, HttpResponse response);
  void answer_error(Exchange& exchange, std::string_view route, const api::Error& error);
  void answer_session_error(Exchange& exchange, std::string_view route,
                            const std::string& request_id, api::Error error);
  void answer_json(Exchange& exchange, const Route& route, const nlohmann::json& body);
  void answer_text_work(const Route& route, const std::shared_ptr<Exchange>& exchange);
  void answer_health(Exchange& exchange, const Route& route, std::optional<std::string> trouble);
  void answer_load(Exchange& exchange, const Route& route);
  void answer_metrics(Exchange& exchange, const Route& route);

  // Runs `work` on the io thread and waits for it.
  void run_on_io(const std::function<void()>& work);

  const ServiceOptions options;
  Logger& logger;
  TextPool text_pool;
  std::atomic<bool> stopped{false};

  // io thread.
  Metrics metrics;
  Health health;
  std::unique_ptr<SessionTable> sessions;
  const GenerationContext* context = nullptr;
  EngineClient* engine = nullptr;

  net::HttpServer http;
};

Service::Impl::Impl(ServiceOptions given, Logger& logger)
    : options(std::move(given)),
      logger(logger),
      text_pool(options.text_threads, options.max_text_jobs),
      metrics(options.metric_aliases),
      health(options.health, Clock::now()),
      http(
          [this] {
            net::ServerOptions http_options = options.http;
            http_options.make_error = protocol_error;
            return http_options;
          }(),
          [this](const std::shared_ptr<Exchange>& exchange) { handle(exchange); }) {
  sessions = std::make_unique<SessionTable>(SessionServices{
      .metrics = metrics,
      .logger = logger,
      .text_pool = text_pool,
      .post = [this](std::function<void()> work) { http.post(std::move(work)); },
      .answer_error =
          [this](Exchange& exchange, const std::string& route, const std::string& request_id,
                 const api::Error& error) {
            answer_session_error(exchange, route, request_id, error);
          },
      .default_seed = options.seed,
      .stream_comment_seconds =
          std::chrono::duration<double>(options.http.stream_comment_interval).count(),
  });
}

void Service::Impl::handle(const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  const Route* route = find_route(request.path);
  const bool open = route != nullptr && route->access == RouteAccess::open;
  // Unknown paths are closed as well: without a key nothing can be learned about the routes.
  if (!open && !options.keys.allows(request)) {
    return answer_error(*exchange, route ? route->path : "other",
                        {.http_status = 401,
                         .type = "authentication_error",
                         .code = "invalid_api_key",
                         .message = "This needs the header \"Authorization: Bearer <key>\" with a "
                                    "key that the server knows."});
  }
  if (route == nullptr) {
    if (request.method == "OPTIONS" && request.path == "*") {
      return answer(*exchange, "other", {.status = 204, .content_type = ""});
    }
    return answer_error(*exchange, "other",
                        {.http_status = 404,
                         .code = "route_not_found",
                         .message = "There is no route " + request.path + "."});
  }
  if (request.method == "OPTIONS") {
    return answer(
        *exchange, route->path,
        {.status = 204, .content_type = "", .headers = {{"Allow", allowed_methods(*route)}}});
  }
  if (!method_matches(*route, request.method)) {
    HttpResponse response =
        error_response({.http_status = 405,
                        .code = "method_not_allowed",
                        .message = request.path + " takes only " + allowed_methods(*route) + "."});
    response.headers.emplace_back("Allow", allowed_methods(*route));
    return answer(*exchange, route->path, std::move(response));
  }
  dispatch(*route, exchange);
}

void Service::Impl::dispatch(const Route& route, const std::shared_ptr<Exchange>& exchange) {
  const std::optional<EngineStats> stats =
      engine ? std::optional<EngineStats>(engine->stats()) : std::nullopt;
  const EngineStats* engine_stats = stats ? &*stats : nullptr;
  switch (route.id) {
    case RouteId::health:
    case RouteId::readyz: return answer_health(*exchange, route, health.not_ready(engine_stats));
    case RouteId::livez:
    case RouteId::ping:
      return answer_health(*exchange, route, health.not_live(engine_stats, Clock::now()));
    case RouteId::version: return answer_json(*exchange, route, {{"version", kVersion}});
    case RouteId::metrics: return answer_metrics(*exchange, route);
    case RouteId::load: return answer_load(*exchange, route);
    default: break;
  }
  // A hung engine takes no new work; a draining one does, until the listener is closed.
  std::optional<std::string> trouble;
  if (context == nullptr) {
    trouble = "the model is loading";
  } else if (route.method == "POST" && health.state() == ServingState::serving) {
    trouble = health.not_ready(engine_stats);
  }
  if (trouble) {
    const bool loading = context == nullptr;
    metrics.rejected(loading ? "loading" : "unhealthy");
    return answer_error(*exchange, route.path,
                        unavailable(loading ? "model_loading" : "engine_unhealthy",
                                    "The server cannot take requests now: " + *trouble + "."));
  }
  switch (route.id) {
    case RouteId::chat_completions:
      return sessions->open(exchange, api::Route::chat, std::string(route.path),
                            echoed_request_id(exchange->request()));
    case RouteId::completions:
      return sessions->open(exchange, api::Route::completions, std::string(route.path),
                            echoed_request_id(exchange->request()));
    case RouteId::models: return answer(*exchange, route.path, {.body = context->models_json()});
    case RouteId::model: {
      const api::Result<std::string> body =
          context->model_json(name_in_path(route, exchange->request().path));
      if (!body.ok()) return answer_error(*exchange, route.path, body.error());
      return answer(*exchange, route.path, {.body = *body});
    }
    default: return answer_text_work(route, exchange);
  }
}

void Service::Impl::answer(Exchange& exchange, std::string_view route, HttpResponse response) {
  metrics.http_answered(route, response.status);
  std::string id = echoed_request_id(exchange.request());
  if (!id.empty()) response.headers.emplace_back("X-Request-Id", std::move(id));
  exchange.respond(std::move(response));
}

void Service::Impl::answer_error(Exchange& exchange, std::string_view route,
                                 const api::Error& error) {
  answer(exchange, route, error_response(error));
}

void Service::Impl::answer_session_error(Exchange& exchange, std::string_view route,
                                         const std::string& request_id, api::Error error) {
  if (request_id.empty()) return answer_error(exchange, route, error);
  // A fault of ours is to be reported, so it names the record in the log.
  if (error.http_status >= 500) error.message += " (request " + request_id + ")";
  HttpResponse response = error_response(error);
  metrics.http_answered(route, response.status);
  response.headers.emplace_back("X-Request-Id", request_id);
  exchange.respond(std::move(response));
}

void Service::Impl::answer_json(Exchange& exchange, const Route& route,
                                const nlohmann::json& body) {
  answer(exchange, route.path, {.body = body.dump()});
}

void Service::Impl::answer_text_work(const Route& route,
                                     const std::shared_ptr<Exchange>& exchange) {
  const bool queued = text_pool.try_run(
      [this, id = route.id, path = route.path, shared = exchange, context = context]() mutable {
        const std::string& body = shared->request().body;
        auto result = std::make_shared<api::Result<std::string>>(
            id == RouteId::tokenize ? context->tokenize(body) : context->detokenize(body));
        http.post([this, path, result, shared = std::move(shared)] {
          if (!result->ok()) return answer_error(*shared, path, result->error());
          answer(*shared, path, {.body = **result});
        });
      });
  if (queued) return;
  metrics.rejected("text_queue");
  answer_error(*exchange, route.path,
               unavailable("text_queue_full", "Too many requests wait to be read."));
}

void Service::Impl::answer_health(Exchange& exchange, const Route& route,
                                  std::optional<std::string> trouble) {
  if (!trouble) return answer_json(exchange, route, {{"status", "ok"}});
  const std::string code = health.state() == ServingState::loading ? "model_loading" : "not_ready";
  answer_error(exchange, route.path, unavailable(code, "Not well: " + *trouble + "."));
}

void Service::Impl::answer_load(Exchange& exchange, const Route& route) {
  nlohmann::json body = {{"server_load", sessions->open_answers()},
                         {"running", 0},
                         {"waiting", 0},
                         {"waiting_tokens", 0},
                         {"kv_cache_usage", 0.0}};
  if (engine != nullptr) {
    const EngineStats stats = engine->stats();
    body["running"] = stats.running;
    body["waiting"] = stats.waiting;
    body["waiting_tokens"] = stats.waiting_tokens;
    if (stats.kv_blocks_total > 0) {
      body["kv_cache_usage"] =
          static_cast<double>(stats.kv_blocks_used) / static_cast<double>(stats.kv_blocks_total);
    }
  }
  answer_json(exchange, route, body);
}

void Service::Impl::answer_metrics(Exchange& exchange, const Route& route) {
  std::optional<EngineStats> stats;
  if (engine != nullptr) stats = engine->stats();
  metrics.log_lines_dropped(logger.dropped());
  answer(exchange, route.path,
         {.content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = metrics.render(stats ? &*stats : nullptr, http.stats())});
}

void Service::Impl::run_on_io(const std::function<void()>& work) {
  if (stopped.load()) return;
  std::promise<void> done;
  http.post([&] {
    work();
    done.set_value();
  });
  done.get_future().wait();
}

Service::Service(ServiceOptions options, Logger& logger)
    : impl_(std::make_unique<Impl>(std::move(options), logger)) {}

Service::~Service() { stop(); }

Status Service::start() {
  MR_RETURN_IF_ERROR(impl_->http.start());
  impl_->http.run_every(kSessionTick, [impl = impl_.get()] { impl->sessions->tick(Clock::now()); });
  return absl::OkStatus();
}

uint16_t Service::port() const { return impl_->http.port(); }

EventSink Service::sink() {
  return [impl = impl_.get()](std::vector<TokenEvent>&& events) {
    impl->http.post([impl, events = std::move(events)] { impl->sessions->on_events(events); });
  };
}

void Service::note_load_progress() {
  impl_->http.post([impl = impl_.get()] { impl->health.note_load_progress(Clock::now()); });
}

void Service::note_start_phase(std::string phase, double seconds) {
  impl_->http.post([impl = impl_.get(), phase = std::move(phase), seconds] {
    impl->metrics.start_phase(phase, seconds);
  });
}

void Service::set_ready(const GenerationContext& context, EngineClient& engine, CacheInfo cache) {
  impl_->run_on_io([&, impl = impl_.get()] {
    impl->metrics.bind_model(context.options().model_names.front(), cache);
    impl->sessions->bind(context, engine);
    impl->context = &context;
    impl->engine = &engine;
    // A drain that began while the model was loading stays one.
    if (impl->health.state() == ServingState::loading) {
      impl->health.set_state(ServingState::serving);
    }
  });
}

void Service::begin_drain() {
  impl_->run_on_io([impl = impl_.get()] { impl->health.set_state(ServingState::draining); });
}

void Service::stop_accepting() {
  impl_->http.stop_accepting();
  impl_->run_on_io([impl = impl_.get()] { impl->sessions->refuse_unstarted(); });
}

int64_t Service::open_answers() const {
  int64_t open = 0;
  impl_->run_on_io([&] { open = impl_->sessions->open_answers(); });
  return open;
}

void Service::fail_remaining(const std::string& why) {
  impl_->run_on_io([&] { impl_->sessions->fail_all(why); });
}

void Service::wait_until_sent(std::chrono::milliseconds limit) {
  const TimePoint deadline = Clock::now() + limit;
  while (impl_->http.stats().exchanges > 0 && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void Service::stop() {
  if (impl_->stopped.exchange(true)) return;
  // Unrun jobs own exchanges, which belong to the io thread.
  auto unrun = std::make_shared<std::deque<std::function<void()>>>(impl_->text_pool.stop());
  impl_->http.post([unrun = std::move(unrun)]() mutable { unrun->clear(); });
  impl_->http.stop();
}

}  // namespace millrace::app
