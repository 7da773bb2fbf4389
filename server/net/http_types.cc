#include "server/net/http_types.h"

#include <algorithm>
#include <ctime>

namespace millrace::net {

namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

size_t HttpRequest::header_count(std::string_view name) const {
  return static_cast<size_t>(std::count_if(
      headers.begin(), headers.end(), [&](const auto& header) { return header.first == name; }));
}

std::string_view status_reason(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "Status";
  }
}

std::string response_head(const HttpResponse& response, std::string_view framing, bool close) {
  std::string head;
  head.reserve(256);
  head.append("HTTP/1.1 ").append(std::to_string(response.status)).append(" ");
  head.append(status_reason(response.status)).append("\r\n");
  if (!response.content_type.empty()) {
    head.append("Content-Type: ").append(response.content_type).append("\r\n");
  }
  for (const auto& [name, value] : response.headers) {
    head.append(name).append(": ");
    // A line break in a value would let its author write headers of their own.
    for (char c : value) head.push_back(static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
    head.append("\r\n");
  }
  head.append("Date: ").append(http_date()).append("\r\n");
  if (!framing.empty()) head.append(framing).append("\r\n");
  head.append(close ? "Connection: close\r\n\r\n" : "Connection: keep-alive\r\n\r\n");
  return head;
}

const std::string& http_date() {
  thread_local std::time_t second = 0;
  thread_local std::string text;
  const std::time_t now = std::time(nullptr);
  if (now != second) {
    second = now;
    std::tm parts{};
    gmtime_r(&now, &parts);
    char buffer[64];
    const size_t size = std::strftime(buffer, sizeof(buffer), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    text.assign(buffer, size);
  }
  return text;
}

std::string to_lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = lower(c);
  return result;
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace millrace::net
