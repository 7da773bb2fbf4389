// HTTP requests and responses as plain values. A request is made by the connection that read it and
// never changes; a response is made by a handler and moved into the exchange.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/clock.h"

namespace millrace::net {

using HeaderList = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string target;  // as sent
  std::string path;    // the target without query; neither decoded nor normalised
  std::string query;   // after '?', without it
  HeaderList headers;  // names in lower case, in order
  std::string body;    // chunks joined
  TimePoint received;  // when the last byte of the body was there

  // The first header of that (lower-case) name; empty if there is none.
  std::string_view header(std::string_view name) const;
  size_t header_count(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";  // empty: no such header
  HeaderList headers;                             // besides type, length, date and connection
  std::string body;
  bool close = false;  // close the connection afterwards
};

std::string_view status_reason(int status);

// The status line and all headers up to the blank line. `framing` is the length or
// transfer-encoding header, without line end.
std::string response_head(const HttpResponse& response, std::string_view framing, bool close);

// "Tue, 01 Dec 2026 00:00:00 GMT", computed once a second. io thread only.
const std::string& http_date();

// ASCII only, as header names need it.
std::string to_lower(std::string_view text);
bool equals_ignoring_case(std::string_view a, std::string_view b);

}  // namespace millrace::net
