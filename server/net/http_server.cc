#include "server/net/http_server.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <thread>
#include <unordered_set>
#include <vector>

#include "server/net/connection.h"

namespace millrace::net {

namespace asio = boost::asio;
using asio::generic::stream_protocol;

namespace {

// How long accepting pauses when the process has no file descriptor left.
constexpr std::chrono::milliseconds kAcceptPause{100};

std::chrono::milliseconds tick_period(const ServerOptions& options) {
  const auto shortest =
      std::min({options.idle_timeout, options.header_timeout, options.body_timeout,
                options.write_stall_timeout, options.stream_comment_interval});
  return std::clamp(shortest / 4, std::chrono::milliseconds(5), std::chrono::milliseconds(250));
}

// A file that a dead server left behind may be replaced; one that somebody listens on may not.
Status remove_stale_socket(const std::string& path) {
  asio::io_context io;
  asio::local::stream_protocol::socket probe(io);
  boost::system::error_code error;
  probe.connect(asio::local::stream_protocol::endpoint(path), error);
  if (!error) return absl::AlreadyExistsError("another server listens on " + path);
  if (error == asio::error::connection_refused) ::unlink(path.c_str());
  return absl::OkStatus();
}

}  // namespace

struct HttpServer::Impl {
  explicit Impl(ServerOptions options) : host(std::make_shared<ConnectionHost>()) {
    host->options = std::move(options);
  }

  Status listen();
  void accept();
  void on_accept(Connection::Socket socket);
  void refuse_connection(Connection::Socket socket);
  void arm_tick();
  void arm_repeating(size_t index);
  void close_all();

  struct Repeating {
    std::unique_ptr<asio::steady_timer> timer;
    std::chrono::milliseconds period;
    std::function<void()> work;
  };

  std::shared_ptr<ConnectionHost> host;
  asio::basic_socket_acceptor<stream_protocol> acceptor{host->io};
  asio::steady_timer accept_timer{host->io};
  asio::steady_timer tick_timer{host->io};
  asio::executor_work_guard<asio::io_context::executor_type> work{host->io.get_executor()};
  std::vector<Repeating> repeating;                             // io thread
  std::unordered_set<std::shared_ptr<Connection>> connections;  // io thread
  bool accepting = false;                                       // io thread
  std::atomic<bool> stopped{false};
  std::atomic<int64_t> num_connections{0}, num_exchanges{0}, num_refused{0};
  uint16_t bound_port = 0;
  bool listening = false;  // set by start() before the io thread exists
  std::thread thread;
};

Status HttpServer::Impl::listen() {
  const ServerOptions& options = host->options;
  boost::system::error_code error;
  stream_protocol::endpoint endpoint;
  const std::string where =
      options.uds.empty() ? options.host + ":" + std::to_string(options.port) : options.uds;
  if (options.uds.empty()) {
    asio::ip::tcp::resolver resolver(host->io);
    const auto found = resolver.resolve(options.host, std::to_string(options.port),
                                        asio::ip::resolver_base::passive, error);
    if (error || found.empty()) {
      return absl::InvalidArgumentError("cannot resolve the host " + options.host);
    }
    endpoint = found.begin()->endpoint();
  } else {
    if (options.uds.size() >= sizeof(sockaddr_un::sun_path)) {
      return absl::InvalidArgumentError("the socket path is too long: " + options.uds);
    }
    MR_RETURN_IF_ERROR(remove_stale_socket(options.uds));
    endpoint = asio::local::stream_protocol::endpoint(options.uds);
  }
  acceptor.open(endpoint.protocol(), error);
  if (!error && options.uds.empty()) {
    acceptor.set_option(asio::socket_base::reuse_address(true), error);
  }
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return absl::UnavailableError("cannot listen on " + where + ": " + error.message());
  }
  if (options.uds.empty()) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    ::getsockname(acceptor.native_handle(), reinterpret_cast<sockaddr*>(&address), &size);
    bound_port =
        ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                            : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
  }
  listening = true;
  return absl::OkStatus();
}

void HttpServer::Impl::accept() {
  acceptor.async_accept([this](const boost::system::error_code& error, Connection::Socket socket) {
    if (!accepting) return;
    if (!error) {
      on_accept(std::move(socket));
      return accept();
    }
    accept_timer.expires_after(kAcceptPause);
    accept_timer.async_wait([this](const boost::system::error_code& cancelled) {
      if (!cancelled && accepting) accept();
    });
  });
}

void HttpServer::Impl::on_accept(Connection::Socket socket) {
  if (connections.size() >= static_cast<size_t>(host->options.max_connections)) {
    return refuse_connection(std::move(socket));
  }
  auto connection = std::make_shared<Connection>(std::move(socket), host);
  connections.insert(connection);
  num_connections.store(static_cast<int64_t>(connections.size()));
  connection->start();
}

void HttpServer::Impl::refuse_connection(Connection::Socket socket) {
  num_refused.fetch_add(1);
  HttpResponse response =
      host->options.make_error(503, "The server has no free connection: its limit is " +
                                        std::to_string(host->options.max_connections) + ".");
  const std::string bytes =
      response_head(response, "Content-Length: " + std::to_string(response.body.size()), true) +
      response.body;
  boost::system::error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(bytes), ignored);
  socket.shutdown(Connection::Socket::shutdown_send, ignored);
}

void HttpServer::Impl::arm_tick() {
  tick_timer.expires_after(tick_period(host->options));
  tick_timer.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    const TimePoint now = Clock::now();
    const std::vector<std::shared_ptr<Connection>> all(connections.begin(), connections.end());
    for (const auto& connection : all) connection->tick(now);
    arm_tick();
  });
}

void HttpServer::Impl::arm_repeating(size_t index) {
  Repeating& entry = repeating[index];
  entry.timer->expires_after(entry.period);
  entry.timer->async_wait([this, index](const boost::system::error_code& error) {
    if (error || stopped.load()) return;
    repeating[index].work();
    arm_repeating(index);
  });
}

void HttpServer::Impl::close_all() {
  accepting = false;
  boost::system::error_code ignored;
  acceptor.close(ignored);
  accept_timer.cancel();
  tick_timer.cancel();
  for (Repeating& entry : repeating) entry.timer->cancel();
  const std::vector<std::shared_ptr<Connection>> all(connections.begin(), connections.end());
  for (const auto& connection : all) connection->close(Disconnect::stopped);
  work.reset();
}

HttpServer::HttpServer(ServerOptions options, Handler handler)
    : impl_(std::make_unique<Impl>(std::move(options))) {
  Impl* impl = impl_.get();
  if (!impl->host->options.make_error) {
    impl->host->options.make_error = [](int status, const std::string& message) {
      return HttpResponse{.status = status, .content_type = "text/plain", .body = message + "\n"};
    };
  }
  impl->host->handler = std::move(handler);
  impl->host->on_closed = [impl](const std::shared_ptr<Connection>& connection) {
    impl->connections.erase(connection);
    impl->num_connections.store(static_cast<int64_t>(impl->connections.size()));
  };
  impl->host->on_exchange = [impl](int delta) { impl->num_exchanges.fetch_add(delta); };
  impl->host->on_refused = [impl] { impl->num_refused.fetch_add(1); };
}

HttpServer::~HttpServer() { stop(); }

Status HttpServer::start() {
  MR_RETURN_IF_ERROR(impl_->listen());
  impl_->accepting = true;
  impl_->accept();
  impl_->arm_tick();
  impl_->thread = std::thread([impl = impl_.get()] { impl->host->io.run(); });
  return absl::OkStatus();
}

uint16_t HttpServer::port() const { return impl_->bound_port; }

void HttpServer::post(std::function<void()> work) { asio::post(impl_->host->io, std::move(work)); }

void HttpServer::run_every(std::chrono::milliseconds period, std::function<void()> work) {
  post([impl = impl_.get(), period, work = std::move(work)]() mutable {
    impl->repeating.push_back(
        {std::make_unique<asio::steady_timer>(impl->host->io), period, std::move(work)});
    impl->arm_repeating(impl->repeating.size() - 1);
  });
}

void HttpServer::stop_accepting() {
  post([impl = impl_.get()] {
    impl->accepting = false;
    impl->host->draining = true;
    boost::system::error_code ignored;
    impl->acceptor.close(ignored);
    const std::vector<std::shared_ptr<Connection>> all(impl->connections.begin(),
                                                       impl->connections.end());
    for (const auto& connection : all) connection->drain();
  });
}

void HttpServer::stop() {
  if (impl_->stopped.exchange(true)) return;
  if (impl_->thread.joinable()) {
    asio::post(impl_->host->io, [impl = impl_.get()] { impl->close_all(); });
    impl_->thread.join();
  }
  // What was posted too late must not keep its captures alive inside the loop that they refer to.
  impl_->host->io.restart();
  impl_->host->io.poll();
  if (impl_->listening && !impl_->host->options.uds.empty())
    ::unlink(impl_->host->options.uds.c_str());
}

ServerStats HttpServer::stats() const {
  return {impl_->num_connections.load(), impl_->num_exchanges.load(), impl_->num_refused.load()};
}

}  // namespace millrace::net
