#include "server/bench/load_client.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

namespace millrace::bench {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using ErrorCode = boost::system::error_code;
using asio::ip::tcp;

namespace {

constexpr size_t kReadBytes = 16 << 10;
constexpr uint32_t kMaxHeaderBytes = 64 << 10;

bool is_port(std::string_view text) {
  return !text.empty() && text.size() <= 5 &&
         text.find_first_not_of("0123456789") == std::string_view::npos &&
         std::stoi(std::string(text)) <= 65535;
}

}  // namespace

struct LoadClient::Parser {
  Parser() {
    http.body_limit(boost::none);
    http.header_limit(kMaxHeaderBytes);
    http.eager(true);
  }
  boost::beast::flat_buffer input;  // what is read and not yet understood
  http::response_parser<http::string_body> http;
};

std::string Target::request(std::string_view path, std::string_view body) const {
  std::string out(body.empty() ? "GET " : "POST ");
  out.append(prefix).append(path).append(" HTTP/1.1\r\nHost: ").append(host);
  if (port != "80") out.append(":").append(port);
  out.append("\r\nUser-Agent: millrace-bench\r\nAccept: */*\r\n");
  if (!api_key.empty()) out.append("Authorization: Bearer ").append(api_key).append("\r\n");
  if (!body.empty())
    out.append("Content-Type: application/json\r\nContent-Length: ")
        .append(std::to_string(body.size()))
        .append("\r\n");
  return out.append("\r\n").append(body);
}

StatusOr<Target> resolve_target(const std::string& base_url, const std::string& api_key) {
  constexpr std::string_view kScheme = "http://";
  const auto illegal = [&] {
    return absl::InvalidArgumentError("--base-url is " + base_url +
                                      "; it must be http://host[:port][/prefix], without TLS.");
  };
  if (!base_url.starts_with(kScheme)) return illegal();
  Target target;
  target.api_key = api_key;
  target.url = base_url;
  while (target.url.ends_with('/')) target.url.pop_back();
  if (target.url.size() <= kScheme.size()) return illegal();
  std::string authority = target.url.substr(kScheme.size());
  if (const size_t slash = authority.find('/'); slash != std::string::npos) {
    target.prefix = authority.substr(slash);
    authority.resize(slash);
  }
  if (target.url.find_first_of(" \t\r\n@?#") != std::string::npos) return illegal();
  if (api_key.find_first_of("\r\n") != std::string::npos)
    return absl::InvalidArgumentError("--api-key has a line end in it; it must be one line.");
  const size_t colon = authority.rfind(':');
  const bool has_port = colon != std::string::npos && authority.back() != ']';
  target.host = authority.substr(0, has_port ? colon : std::string::npos);
  target.port = has_port ? authority.substr(colon + 1) : "80";
  if (target.host.empty() || !is_port(target.port)) return illegal();

  std::string name = target.host;
  if (name.front() == '[' && name.back() == ']') name = name.substr(1, name.size() - 2);
  asio::io_context io(1);
  ErrorCode error;
  for (const auto& entry : tcp::resolver(io).resolve(name, target.port, error))
    target.endpoints.push_back(entry.endpoint());
  if (error || target.endpoints.empty())
    return absl::UnavailableError("The host of --base-url " + base_url +
                                  " has no address: " + error.message() + ".");
  return target;
}

LoadClient::LoadClient(asio::io_context& io, const Target& target)
    : socket_(io), timer_(io), target_(target) {}

LoadClient::~LoadClient() = default;

void LoadClient::send(std::string request, std::chrono::duration<double> timeout, Done done) {
  request_ = std::move(request);
  done_ = std::move(done);
  parser_ = std::make_unique<Parser>();
  recording_ = {};
  recording_.start = Clock::now();
  const uint64_t exchange = ++exchange_;
  timer_.expires_after(std::chrono::duration_cast<Clock::duration>(timeout));
  timer_.async_wait([self = shared_from_this(), exchange](const ErrorCode& error) {
    if (!error && exchange == self->exchange_) self->finish("timeout", "no whole answer in time");
  });
  reused_ = socket_.is_open();
  if (reused_) {
    write();
  } else {
    connect(0);
  }
}

void LoadClient::abort() {
  ++exchange_;
  done_ = nullptr;
  timer_.cancel();
  ErrorCode ignored;
  socket_.close(ignored);
}

bool LoadClient::reusable() {
  if (!socket_.is_open() || !keep_alive_) return false;
  // An idle connection has nothing to read; bytes, or an end, mean that the server gave it up.
  ErrorCode error;
  char byte;
  socket_.receive(asio::buffer(&byte, 1), tcp::socket::message_peek, error);
  return error == asio::error::would_block;
}

void LoadClient::connect(size_t endpoint) {
  socket_.async_connect(
      target_.endpoints[endpoint],
      [self = shared_from_this(), endpoint, exchange = exchange_](const ErrorCode& error) {
        if (exchange != self->exchange_) return;
        ErrorCode ignored;
        if (error && endpoint + 1 < self->target_.endpoints.size()) {
          self->socket_.close(ignored);
          return self->connect(endpoint + 1);
        }
        if (error) return self->finish("connect", error.message());
        self->socket_.set_option(tcp::no_delay(true), ignored);
        self->socket_.non_blocking(true, ignored);
        self->write();
      });
}

void LoadClient::reconnect() {
  reused_ = false;
  recording_.resent = true;
  ErrorCode ignored;
  socket_.close(ignored);
  connect(0);
}

void LoadClient::write() {
  asio::async_write(
      socket_, asio::buffer(request_),
      [self = shared_from_this(), exchange = exchange_](const ErrorCode& error, size_t) {
        if (exchange != self->exchange_) return;
        // A server may refuse, answer and close before it has read the whole request, so a failed
        // write is left to the read to explain.
        static_cast<void>(error);
        self->read();
      });
}

void LoadClient::read() {
  socket_.async_read_some(
      parser_->input.prepare(kReadBytes),
      [self = shared_from_this(), exchange = exchange_](const ErrorCode& error, size_t n) {
        if (exchange != self->exchange_) return;
        // The server may close an idle connection just as it is used again. That it has not taken
        // the request is likely, not certain, so the record says that it was sent twice.
        if (error && self->reused_ && !self->parser_->http.got_some()) return self->reconnect();
        if (error && error != asio::error::eof)
          return self->finish("stream_broken", error.message());
        self->on_bytes(n, error == asio::error::eof);
      });
}

void LoadClient::on_bytes(size_t n, bool end_of_input) {
  const TimePoint now = Clock::now();
  Parser& parser = *parser_;
  parser.input.commit(n);
  ErrorCode error;
  if (parser.input.size() > 0) {
    parser.input.consume(parser.http.put(parser.input.data(), error));
    if (error == http::error::need_more) error = {};
  }
  if (end_of_input && !error && !parser.http.is_done()) {
    if (parser.http.got_some()) parser.http.put_eof(error);
    if (!parser.http.is_done())
      return finish("stream_broken", "the connection ended before the answer did");
  }
  if (error) return finish("stream_broken", "the answer is no HTTP/1.1: " + error.message());
  const size_t size = parser.http.get().body().size();
  if (recording_.marks.empty() ? size > 0 : size > recording_.marks.back().end)
    recording_.marks.push_back({now, size});
  if (!parser.http.is_done()) return read();
  finish({}, {});
}

void LoadClient::finish(std::string failure, std::string message) {
  ++exchange_;
  timer_.cancel();
  recording_.end = Clock::now();
  recording_.status = parser_->http.is_header_done() ? parser_->http.get().result_int() : 0;
  recording_.body = std::move(parser_->http.get().body());
  keep_alive_ = failure.empty() && parser_->http.keep_alive() && parser_->input.size() == 0;
  recording_.failure = std::move(failure);
  recording_.message = std::move(message);
  if (!keep_alive_) {
    ErrorCode ignored;
    socket_.close(ignored);
  }
  const Done done = std::move(done_);
  done_ = nullptr;
  done(std::move(recording_));
}

StatusOr<std::string> http_get(const Target& target, std::string_view path,
                               std::chrono::duration<double> timeout) {
  asio::io_context io(1);
  const auto client = std::make_shared<LoadClient>(io, target);
  Recording answer;
  client->send(target.request(path, {}), timeout,
               [&](Recording&& recording) { answer = std::move(recording); });
  io.run();
  const std::string what = "GET " + target.url + std::string(path);
  if (!answer.failure.empty())
    return absl::UnavailableError(what + " failed (" + answer.failure + "): " + answer.message +
                                  ".");
  if (answer.status != 200)
    return absl::UnavailableError(what + " was answered with status " +
                                  std::to_string(answer.status) + ", not 200.");
  return std::move(answer.body);
}

}  // namespace millrace::bench
