// RequestParser: bytes of one connection in, one HTTP/1.1 request out. It touches no socket, so
// every misuse can be tested as text. Owned by a connection; io thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/net/http_types.h"

namespace millrace::net {

struct ParserLimits {
  uint32_t max_header_bytes = 16 << 10;
  uint64_t max_body_bytes = 32 << 20;
};

class RequestParser {
 public:
  enum class State : uint8_t { header, body, done, failed };

  explicit RequestParser(const ParserLimits& limits);
  ~RequestParser();
  RequestParser(RequestParser&&) noexcept;

  // Consumes bytes from the front of `bytes` and returns how many; what is left belongs to the next
  // request. Call again with more bytes until the state is done or failed.
  size_t feed(std::string_view bytes);

  State state() const { return state_; }
  bool started() const { return started_; }  // at least one byte of a request has come

  // Valid from State::body on.
  bool keep_alive() const { return keep_alive_; }
  bool http_1_0() const { return http_1_0_; }
  bool expects_continue() const { return expects_continue_; }

  // Valid in State::done.
  HttpRequest take_request();

  // Valid in State::failed: what to answer before closing.
  int error_status() const { return error_status_; }
  const std::string& error_message() const { return error_message_; }

 private:
  struct Impl;

  void fail(int status, std::string message);
  // Refuses what two parsers in a row could read differently.
  void check_header();

  std::unique_ptr<Impl> impl_;
  ParserLimits limits_;
  State state_ = State::header;
  bool started_ = false;
  bool keep_alive_ = false, http_1_0_ = false, expects_continue_ = false;
  int error_status_ = 0;
  std::string error_message_;
};

}  // namespace millrace::net
