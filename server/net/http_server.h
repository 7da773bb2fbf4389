// HttpServer: listens on TCP or a Unix socket, reads HTTP/1.1 requests with every limit below, and
// hands each to the handler as an Exchange. One io thread runs all of it, the handler included, so
// a handler must return at once. Owned by the application; its methods may be called by any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/status.h"
#include "server/net/exchange.h"
#include "server/net/request_parser.h"

namespace millrace::net {

struct ServerOptions {
  std::string host = "0.0.0.0";
  uint16_t port = 8000;  // 0: any free one, see HttpServer::port()
  std::string uds;       // path of a Unix socket instead of host and port

  int max_connections = 8192;  // one more is answered 503 and closed
  int64_t max_requests_per_connection = 100'000;
  ParserLimits parser;
  std::chrono::milliseconds idle_timeout{75'000};    // between requests; closes silently
  std::chrono::milliseconds header_timeout{10'000};  // first byte to end of headers; 408
  std::chrono::milliseconds body_timeout{60'000};    // end of headers to end of body; 408
  std::chrono::milliseconds write_stall_timeout{30'000};
  std::chrono::milliseconds stream_comment_interval{15'000};  // silence before ": keepalive"
  size_t high_water_bytes = 64 << 10;                         // Exchange::congested
  size_t max_backlog_bytes = 8 << 20;                         // hard cap of a stream's unread bytes

  // Makes the answer to what is refused before any handler sees it.
  std::function<HttpResponse(int status, const std::string& message)> make_error;
};

struct ServerStats {
  int64_t connections = 0;       // open now
  int64_t exchanges = 0;         // being answered now
  int64_t refused_requests = 0;  // answered by make_error so far
};

class HttpServer {
 public:
  using Handler = std::function<void(std::shared_ptr<Exchange> exchange)>;

  HttpServer(ServerOptions options, Handler handler);
  ~HttpServer();  // stop()

  // Opens the port and starts the io thread.
  Status start();
  uint16_t port() const;

  // Runs `work` on the io thread, after what was posted before. What is posted while the server
  // stops is run by the thread that stops it; later posts are not run.
  void post(std::function<void()> work);
  // Runs `work` on the io thread every `period` until stop().
  void run_every(std::chrono::milliseconds period, std::function<void()> work);

  // Closes the listener and idle connections; running exchanges go on and close afterwards.
  void stop_accepting();
  // Ends every connection and joins the io thread. Must not be called by that thread.
  void stop();

  ServerStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::net
