// Connection: one accepted socket for its whole life. It reads requests one after the other, hands
// each out as an Exchange and writes the answer. Lives on the io thread only; kept alive by its
// pending operations, by the exchange being answered and by the server's set.
//
//   reading ──request complete──► answering ──answer written──► reading | closing
//
// One read is always pending, also while answering: it notices a client that leaves, within
// milliseconds and whether or not anything is being written, and collects pipelined bytes up to a
// bound. At most one write is pending.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "server/net/exchange.h"
#include "server/net/http_server.h"
#include "server/net/request_parser.h"

namespace millrace::net {

class Connection;

// What all connections of a server share. Owned by the server and by each connection, because an
// exchange, and so its connection, may be held longer than the server lives.
struct ConnectionHost {
  boost::asio::io_context io{1};
  ServerOptions options;
  HttpServer::Handler handler;
  std::function<void(const std::shared_ptr<Connection>&)> on_closed;
  std::function<void(int delta)> on_exchange;  // +1 begun, -1 over
  std::function<void()> on_refused;
  bool draining = false;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;

  Connection(Socket socket, std::shared_ptr<ConnectionHost> host);

  void start();
  // Looks at every deadline; called several times a second.
  void tick(TimePoint now);
  // Closes now if no exchange is running, else after it.
  void drain();
  void close(Disconnect reason);

 private:
  friend class ConnectionExchange;
  enum class Phase : uint8_t { reading, answering, lingering, closed };

  void arm_read();
  void resume_reading();  // after a phase change, when there is room for input again
  void on_readable();
  // False once the client has closed or reset.
  bool read_available();
  void on_input_end();
  void parse();
  void begin_exchange();
  void refuse(int status, std::string message);

  // Of the exchange being answered.
  void respond(HttpResponse response);
  void begin_stream(HttpResponse head);
  void write_stream(std::string_view bytes);
  void end_stream(bool close_connection);
  void finish_answer();
  bool congested() const { return backlog() >= host_->options.high_water_bytes; }

  size_t backlog() const { return unframed_.size() + framed_.size() + writing_.size() - written_; }
  // Joins what a turn of the event loop queues into one write.
  void schedule_flush();
  void flush();
  void after_answer();
  // Waits for the client to close after a refusal, so that it can read the answer first.
  void linger();

  Socket socket_;
  const std::shared_ptr<ConnectionHost> host_;
  Phase phase_ = Phase::reading;

  std::string input_;  // read, not yet parsed; bounded
  bool read_armed_ = false, waits_for_room_ = false, input_ended_ = false;
  std::unique_ptr<RequestParser> parser_;
  int64_t num_requests_ = 0;

  // The exchange being answered; `exchange_id_` tells late calls of an earlier one apart.
  uint64_t exchange_id_ = 0;
  std::function<void(Disconnect)> on_disconnect_;
  std::function<void()> on_writable_;
  bool head_only_ = false, http_1_0_ = false, keep_alive_ = false;
  bool streaming_ = false, answer_complete_ = false;
  bool was_congested_ = false;

  std::string unframed_;  // stream bytes that still need a chunk frame
  std::string framed_;    // ready for the socket
  std::string writing_;   // being written, from `written_` on
  size_t written_ = 0;
  bool write_armed_ = false, flush_scheduled_ = false;

  TimePoint phase_since_;    // for the read deadlines and lingering
  TimePoint last_progress_;  // when the socket last took a byte, or an empty queue got one
  size_t lingered_bytes_ = 0;
};

}  // namespace millrace::net
