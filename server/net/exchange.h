// Exchange: one request on a connection and the way to answer it. Shared by the connection and the
// handler that answers; every method belongs to the io thread. An exchange that is dropped without
// an answer answers 500 by itself.
//
// Answering: either respond() once, or begin_stream(), write()..., end_stream(). Writes never
// block: bytes are joined in one buffer of which one write at a time goes to the socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/net/http_types.h"

namespace millrace::net {

enum class Disconnect : uint8_t {
  client_gone,  // closed or reset by the client
  stalled,      // the client took no byte for the stall time
  overflow,     // more unread bytes than the hard cap
  stopped,      // the server closed it
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;

  // Called at most once, from the event loop (never from inside a method of the exchange), when the
  // connection ends before the answer has been handed over completely. Later calls of the other
  // methods have no effect.
  virtual void on_disconnect(std::function<void(Disconnect)> callback) = 0;

  virtual void respond(HttpResponse response) = 0;

  // Sends status and headers; the body of `head` must be empty.
  virtual void begin_stream(HttpResponse head) = 0;
  virtual void write(std::string_view bytes) = 0;
  virtual void end_stream(bool close_connection) = 0;

  // True while more bytes wait for the client than the high-water mark: a producer that can merge
  // what it has should hold it back until on_writable's callback, which is kept until replaced.
  virtual bool congested() const = 0;
  virtual void on_writable(std::function<void()> callback) = 0;
};

}  // namespace millrace::net
