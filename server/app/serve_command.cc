// The options of `millrace serve`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/app/commands.h"
#include "server/app/config.h"
#include "server/app/serve.h"

namespace millrace::app {

namespace {

// What the command line sets; durations in seconds.
struct ServeFlags {
  ServeOptions options;
  ConfigFlags config;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  int64_t seed = -1;
  double idle_timeout = 75.0, header_timeout = 10.0, body_timeout = 60.0;
  double write_stall_timeout = 30.0, stream_comment_interval = 15.0;
};

void add_network_options(CLI::App& app, ServeFlags& flags) {
  net::ServerOptions& http = flags.options.service.http;
  app.add_option("--host", http.host, "Address to listen on.");
  app.add_option("--port", http.port, "Port to listen on; 0 takes any free one.");
  app.add_option("--uds", http.uds, "Path of a Unix socket to listen on instead of host and port.");
  app.add_option("--max-connections", http.max_connections,
                 "Open connections; one more is answered 503.")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--max-requests-per-connection", http.max_requests_per_connection,
                 "Requests before a connection is closed.")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 62));
  app.add_option("--max-header-bytes", http.parser.max_header_bytes,
                 "Request line and headers of a request.")
      ->check(CLI::Range(uint32_t{512}, uint32_t{1} << 20));
  const auto seconds = CLI::Range(0.01, 86'400.0);
  app.add_option("--idle-timeout", flags.idle_timeout,
                 "Seconds that a connection may wait between requests.")
      ->check(seconds);
  app.add_option("--header-timeout", flags.header_timeout,
                 "Seconds from a request's first byte to the end of its headers.")
      ->check(seconds);
  app.add_option("--body-timeout", flags.body_timeout,
                 "Seconds from the end of the headers to the end of the body.")
      ->check(seconds);
  app.add_option("--write-stall-timeout", flags.write_stall_timeout,
                 "Seconds for which a client may take no byte of its answer.")
      ->check(seconds);
  app.add_option("--stream-comment-interval", flags.stream_comment_interval,
                 "Seconds of silence before a stream gets a comment line.")
      ->check(seconds);
  app.add_option("--max-backlog-bytes", http.max_backlog_bytes,
                 "Unread bytes of a stream before its request is cancelled.")
      ->check(CLI::Range(size_t{64} << 10, size_t{1} << 30));
}

void add_service_options(CLI::App& app, ServeFlags& flags) {
  ServeOptions& options = flags.options;
  app.add_option("--api-key", flags.api_keys,
                 "Key that clients must send; may be repeated. Probes and /metrics stay open.");
  app.add_option("--api-key-file", flags.api_key_file, "File with one key per line.");
  app.add_option("--seed", flags.seed,
                 "Seed of sampled requests that have none; -1 draws one for each.")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 62));
  app.add_option("--text-threads", options.service.text_threads,
                 "Threads that parse requests, render templates and tokenise.")
      ->check(CLI::Range(1, 256));
  app.add_option("--max-text-jobs", options.service.max_text_jobs,
                 "Requests that may wait for those threads; one more is answered 503.")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--health-timeout", options.service.health.stall_seconds,
                 "Seconds without progress after which readiness fails (liveness: four times).")
      ->check(CLI::Range(0.1, 86'400.0));
  app.add_option("--drain-delay", options.drain_delay_seconds,
                 "Seconds after SIGTERM during which requests are still accepted.")
      ->check(CLI::Range(0.0, 86'400.0));
  app.add_option("--shutdown-timeout", options.shutdown_timeout_seconds,
                 "Seconds that running requests have to finish.")
      ->check(CLI::Range(0.0, 86'400.0));
  const std::map<std::string, LogLevel> levels = {{"debug", LogLevel::debug},
                                                  {"info", LogLevel::info},
                                                  {"warning", LogLevel::warning},
                                                  {"error", LogLevel::error}};
  app.add_option("--log-level", options.log_level, "debug, info, warning or error.")
      ->transform(CLI::CheckedTransformer(levels))
      ->default_str("info");
  const std::map<std::string, LogFormat> formats = {{"json", LogFormat::json},
                                                    {"text", LogFormat::text}};
  app.add_option("--log-format", options.log_format, "json or text.")
      ->transform(CLI::CheckedTransformer(formats))
      ->default_str("json");
  app.add_flag("--vllm-metrics,!--no-vllm-metrics", options.service.metric_aliases,
               "Export vLLM's metric names beside our own.")
      ->default_str("true");
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000.0));
}

void finish(ServeFlags& flags) {
  net::ServerOptions& http = flags.options.service.http;
  http.idle_timeout = milliseconds(flags.idle_timeout);
  http.header_timeout = milliseconds(flags.header_timeout);
  http.body_timeout = milliseconds(flags.body_timeout);
  http.write_stall_timeout = milliseconds(flags.write_stall_timeout);
  http.stream_comment_interval = milliseconds(flags.stream_comment_interval);
  http.parser.max_body_bytes = flags.options.model.limits.max_body_bytes;
  if (flags.seed >= 0) flags.options.service.seed = static_cast<uint64_t>(flags.seed);
  StatusOr<ApiKeys> keys = ApiKeys::load(flags.api_keys, flags.api_key_file);
  if (!keys.ok()) throw CLI::ValidationError(status_message(keys.status()));
  flags.options.service.keys = *std::move(keys);
}

}  // namespace

void add_serve_command(CLI::App& app, CommandResult& result) {
  CLI::App* serve = app.add_subcommand("serve", "Serve a model over an OpenAI-compatible HTTP API");
  // Owned by the callback, which lives as long as the application.
  auto flags = std::make_shared<ServeFlags>();
  add_config_flags(*serve, flags->config);
  add_local_model_options(*serve, flags->options.model);
  add_network_options(*serve, *flags);
  add_service_options(*serve, *flags);
  one_value_per_flag(*serve);
  serve->callback([serve, flags, &result] {
    resolve_settings(*serve, flags->config);
    if (flags->config.print) {
      result.run = [serve] {
        std::fputs(settings_text(*serve).c_str(), stdout);
        return 0;
      };
      return;
    }
    finish(*flags);
    if (flags->options.model.model.empty()) throw CLI::RequiredError("MODEL");
    result.run = [flags] { return run_serve(flags->options); };
  });
}

}  // namespace millrace::app
