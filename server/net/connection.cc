#include "server/net/connection.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <cstdio>

namespace millrace::net {

namespace asio = boost::asio;

namespace {

constexpr size_t kReadBytes = 64 << 10;
// Bytes of later requests that are kept while one is being answered.
constexpr size_t kPipelineBytes = 64 << 10;
// After a refusal: how long, and how much, is read and thrown away.
constexpr std::chrono::seconds kLingerTime{2};
constexpr size_t kLingerBytes = 64 << 20;

}  // namespace

// Holds the connection; calls that come after the answer, or after the end, do nothing.
class ConnectionExchange final : public Exchange {
 public:
  ConnectionExchange(std::shared_ptr<Connection> connection, HttpRequest request)
      : connection_(std::move(connection)),
        request_(std::move(request)),
        id_(connection_->exchange_id_) {}

  ~ConnectionExchange() override {
    if (!live()) return;
    if (connection_->streaming_) {
      connection_->end_stream(true);
    } else {
      connection_->respond(connection_->host_->options.make_error(
          500, "The server dropped this request without an answer."));
    }
  }

  const HttpRequest& request() const override { return request_; }

  void on_disconnect(std::function<void(Disconnect)> callback) override {
    if (live()) connection_->on_disconnect_ = std::move(callback);
  }
  void respond(HttpResponse response) override {
    if (live() && !connection_->streaming_) connection_->respond(std::move(response));
  }
  void begin_stream(HttpResponse head) override {
    if (live() && !connection_->streaming_) connection_->begin_stream(std::move(head));
  }
  void write(std::string_view bytes) override {
    if (live() && connection_->streaming_) connection_->write_stream(bytes);
  }
  void end_stream(bool close_connection) override {
    if (live() && connection_->streaming_) connection_->end_stream(close_connection);
  }
  bool congested() const override { return live() && connection_->congested(); }
  void on_writable(std::function<void()> callback) override {
    if (live()) connection_->on_writable_ = std::move(callback);
  }

 private:
  bool live() const {
    return connection_->phase_ == Connection::Phase::answering &&
           connection_->exchange_id_ == id_ && !connection_->answer_complete_;
  }

  const std::shared_ptr<Connection> connection_;
  const HttpRequest request_;
  const uint64_t id_;
};

Connection::Connection(Socket socket, std::shared_ptr<ConnectionHost> host)
    : socket_(std::move(socket)), host_(std::move(host)) {}

void Connection::start() {
  boost::system::error_code ignored;
  socket_.non_blocking(true, ignored);
  if (host_->options.uds.empty()) socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  phase_since_ = last_progress_ = Clock::now();
  arm_read();
}

void Connection::arm_read() {
  if (read_armed_ || input_ended_ || phase_ == Phase::closed) return;
  read_armed_ = true;
  // With no room for more input, only a reset is still noticed.
  waits_for_room_ = phase_ == Phase::answering && input_.size() >= kPipelineBytes;
  socket_.async_wait(waits_for_room_ ? Socket::wait_error : Socket::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       self->read_armed_ = false;
                       if (self->phase_ == Phase::closed) return;
                       if (error == asio::error::operation_aborted) return self->arm_read();
                       if (error || self->waits_for_room_) {
                         return self->close(Disconnect::client_gone);
                       }
                       self->on_readable();
                     });
}

void Connection::resume_reading() {
  if (read_armed_ && waits_for_room_) {
    boost::system::error_code ignored;
    socket_.cancel(ignored);
  }
  arm_read();
}

void Connection::on_readable() {
  if (!read_available()) {
    on_input_end();
  } else {
    parse();
  }
  arm_read();
}

bool Connection::read_available() {
  thread_local char buffer[kReadBytes];
  boost::system::error_code error;
  const size_t n = socket_.read_some(asio::buffer(buffer), error);
  if (error == asio::error::would_block || error == asio::error::interrupted) return true;
  if (error) return false;
  if (phase_ == Phase::lingering) {
    lingered_bytes_ += n;
    return lingered_bytes_ < kLingerBytes;
  }
  input_.append(buffer, n);
  return true;
}

void Connection::on_input_end() {
  // An answer that is complete is still delivered to a client that has only closed its half.
  if (phase_ == Phase::answering && answer_complete_) {
    input_ended_ = true;
    keep_alive_ = false;
    return flush();
  }
  close(Disconnect::client_gone);
}

void Connection::parse() {
  while (phase_ == Phase::reading && !input_.empty()) {
    if (!parser_) parser_ = std::make_unique<RequestParser>(host_->options.parser);
    const bool was_started = parser_->started();
    const RequestParser::State before = parser_->state();
    input_.erase(0, parser_->feed(input_));
    const RequestParser::State state = parser_->state();
    if (was_started != parser_->started() || before != state) phase_since_ = Clock::now();
    switch (state) {
      case RequestParser::State::failed:
        return refuse(parser_->error_status(), parser_->error_message());
      case RequestParser::State::done: begin_exchange(); break;
      case RequestParser::State::body:
        if (before == RequestParser::State::header && parser_->expects_continue()) {
          framed_.append("HTTP/1.1 100 Continue\r\n\r\n");
          flush();
        }
        return;
      case RequestParser::State::header: return;
    }
  }
}

void Connection::begin_exchange() {
  HttpRequest request = parser_->take_request();
  http_1_0_ = parser_->http_1_0();
  ++num_requests_;
  keep_alive_ = parser_->keep_alive() && num_requests_ < host_->options.max_requests_per_connection;
  parser_.reset();
  head_only_ = request.method == "HEAD";
  phase_ = Phase::answering;
  ++exchange_id_;
  streaming_ = answer_complete_ = was_congested_ = false;
  host_->on_exchange(+1);
  host_->handler(std::make_shared<ConnectionExchange>(shared_from_this(), std::move(request)));
}

void Connection::refuse(int status, std::string message) {
  host_->on_refused();
  parser_.reset();
  input_.clear();
  keep_alive_ = head_only_ = http_1_0_ = streaming_ = false;
  phase_ = Phase::answering;
  ++exchange_id_;
  host_->on_exchange(+1);
  answer_complete_ = false;
  respond(host_->options.make_error(status, message));
}

void Connection::respond(HttpResponse response) {
  keep_alive_ = keep_alive_ && !response.close && !host_->draining;
  const bool bodyless = response.status == 204;
  std::string framing;
  if (!bodyless) framing = "Content-Length: " + std::to_string(response.body.size());
  framed_.append(response_head(response, framing, !keep_alive_));
  if (!head_only_ && !bodyless) framed_.append(response.body);
  finish_answer();
}

void Connection::begin_stream(HttpResponse head) {
  streaming_ = true;
  keep_alive_ = keep_alive_ && !http_1_0_ && !head.close && !host_->draining;
  framed_.append(response_head(head, http_1_0_ ? "" : "Transfer-Encoding: chunked", !keep_alive_));
  schedule_flush();
}

void Connection::write_stream(std::string_view bytes) {
  if (head_only_) return;
  unframed_.append(bytes);
  if (backlog() > host_->options.max_backlog_bytes) return close(Disconnect::overflow);
  was_congested_ = was_congested_ || congested();
  schedule_flush();
}

void Connection::end_stream(bool close_connection) {
  keep_alive_ = keep_alive_ && !close_connection && !host_->draining;
  finish_answer();
}

void Connection::finish_answer() {
  answer_complete_ = true;
  on_disconnect_ = nullptr;
  on_writable_ = nullptr;
  schedule_flush();
}

void Connection::schedule_flush() {
  if (flush_scheduled_ || write_armed_) return;
  flush_scheduled_ = true;
  asio::post(host_->io, [self = shared_from_this()] {
    self->flush_scheduled_ = false;
    self->flush();
  });
}

void Connection::flush() {
  if (write_armed_ || phase_ == Phase::closed) return;
  for (;;) {
    if (written_ == writing_.size()) {
      writing_.clear();
      written_ = 0;
      if (!unframed_.empty() && !http_1_0_) {
        char size[24];
        std::snprintf(size, sizeof(size), "%zx\r\n", unframed_.size());
        framed_.append(size).append(unframed_).append("\r\n");
      } else {
        framed_.append(unframed_);
      }
      unframed_.clear();
      if (answer_complete_ && streaming_) {
        streaming_ = false;
        if (!http_1_0_ && !head_only_) framed_.append("0\r\n\r\n");
      }
      if (framed_.empty()) break;
      writing_.swap(framed_);
      last_progress_ = Clock::now();
    }
    boost::system::error_code error;
    const size_t n = socket_.write_some(
        asio::buffer(writing_.data() + written_, writing_.size() - written_), error);
    if (error == asio::error::would_block) {
      write_armed_ = true;
      socket_.async_wait(Socket::wait_write,
                         [self = shared_from_this()](const boost::system::error_code&) {
                           self->write_armed_ = false;
                           self->flush();
                         });
      break;
    }
    if (error) return close(Disconnect::client_gone);
    written_ += n;
    if (n > 0) last_progress_ = Clock::now();
  }
  if (was_congested_ && backlog() < host_->options.high_water_bytes / 2) {
    was_congested_ = false;
    if (on_writable_) asio::post(host_->io, [callback = on_writable_] { callback(); });
  }
  if (answer_complete_ && backlog() == 0 && phase_ == Phase::answering) after_answer();
}

void Connection::after_answer() {
  host_->on_exchange(-1);
  phase_since_ = Clock::now();
  // A large answer's buffer is not kept for the life of an idle connection.
  if (writing_.capacity() > kReadBytes) std::string().swap(writing_);
  if (framed_.capacity() > kReadBytes) std::string().swap(framed_);
  if (unframed_.capacity() > kReadBytes) std::string().swap(unframed_);
  if (!keep_alive_ || (host_->draining && input_.empty())) return linger();
  answer_complete_ = false;
  phase_ = Phase::reading;
  parse();
  resume_reading();
}

void Connection::linger() {
  phase_ = Phase::lingering;
  phase_since_ = Clock::now();
  input_.clear();
  boost::system::error_code error;
  socket_.shutdown(Socket::shutdown_send, error);
  if (error || input_ended_) return close(Disconnect::client_gone);
  resume_reading();
}

void Connection::tick(TimePoint now) {
  const ServerOptions& options = host_->options;
  switch (phase_) {
    case Phase::reading: {
      if (!parser_ || !parser_->started()) {
        if (now - phase_since_ >= options.idle_timeout) close(Disconnect::stopped);
      } else if (parser_->state() == RequestParser::State::header) {
        if (now - phase_since_ >= options.header_timeout) {
          refuse(408, "The request's headers did not arrive in time.");
        }
      } else if (now - phase_since_ >= options.body_timeout) {
        refuse(408, "The request's body did not arrive in time.");
      }
      break;
    }
    case Phase::answering:
      if (backlog() > 0) {
        if (now - last_progress_ >= options.write_stall_timeout) close(Disconnect::stalled);
      } else if (streaming_ && now - last_progress_ >= options.stream_comment_interval) {
        last_progress_ = now;
        write_stream(": keepalive\n\n");
      }
      break;
    case Phase::lingering:
      if (now - phase_since_ >= kLingerTime) close(Disconnect::stopped);
      break;
    case Phase::closed: break;
  }
}

void Connection::drain() {
  if (phase_ == Phase::reading && (!parser_ || !parser_->started()) && input_.empty()) {
    close(Disconnect::stopped);
  }
}

void Connection::close(Disconnect reason) {
  if (phase_ == Phase::closed) return;
  const bool answering = phase_ == Phase::answering;
  phase_ = Phase::closed;
  boost::system::error_code ignored;
  socket_.close(ignored);
  if (on_disconnect_) {
    asio::post(host_->io, [callback = std::move(on_disconnect_), reason] { callback(reason); });
  }
  on_disconnect_ = nullptr;
  on_writable_ = nullptr;
  if (answering) host_->on_exchange(-1);
  host_->on_closed(shared_from_this());
}

}  // namespace millrace::net
