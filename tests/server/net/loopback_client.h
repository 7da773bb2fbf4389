// LoopbackClient: a blocking socket to a server in this process, for tests that must control each
// byte. Every wait is bounded.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "server/net/http_types.h"

namespace millrace::net {

struct ClientResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // lower-case names
  std::string body;                            // chunks joined
  bool complete = false;                       // the whole answer was there
};

class LoopbackClient {
 public:
  // `receive_buffer` > 0 makes a reader that is soon full.
  explicit LoopbackClient(uint16_t port, int receive_buffer = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~LoopbackClient() { close(); }
  LoopbackClient(const LoopbackClient&) = delete;
  LoopbackClient& operator=(const LoopbackClient&) = delete;

  bool connected() const { return connected_; }

  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // Ends the connection with RST instead of FIN.
  void reset() {
    const linger hard{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    close();
  }
  void shutdown_write() { ::shutdown(fd_, SHUT_WR); }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  // Reads what comes within the time; false at the end of the stream or if nothing came.
  bool read_more(int timeout_ms = 5000) {
    pollfd poll_fd{fd_, POLLIN, 0};
    if (::poll(&poll_fd, 1, timeout_ms) <= 0) return false;
    char buffer[16384];
    const ssize_t n = ::recv(fd_, buffer, sizeof(buffer), 0);
    if (n <= 0) {
      ended_ = true;
      return false;
    }
    input_.append(buffer, static_cast<size_t>(n));
    return true;
  }
  // True once the server has closed (after draining what it sent).
  bool wait_for_end(int timeout_ms = 5000) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    while (!ended_ && std::chrono::steady_clock::now() < deadline) read_more(50);
    return ended_;
  }
  bool read_until(std::string_view text, int timeout_ms = 5000) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    while (input_.find(text) == std::string::npos) {
      if (ended_ || std::chrono::steady_clock::now() > deadline) return false;
      read_more(50);
    }
    return true;
  }
  const std::string& input() const { return input_; }

  // Takes one whole answer from the stream.
  ClientResponse read_response(bool has_body = true) {
    ClientResponse response;
    if (!read_until("\r\n\r\n")) return response;
    size_t end = input_.find("\r\n\r\n") + 4;
    parse_head(input_.substr(0, end), response);
    if (!has_body || response.status == 204) {
      response.complete = true;
    } else if (response.headers.count("content-length") > 0) {
      const size_t length = std::stoul(response.headers["content-length"]);
      while (input_.size() < end + length && read_more()) continue;
      response.body = input_.substr(end, length);
      response.complete = response.body.size() == length;
      end += response.body.size();
    } else if (response.headers["transfer-encoding"] == "chunked") {
      end = read_chunks(end, response);
    } else {
      while (read_more()) continue;
      response.body = input_.substr(end);
      response.complete = ended_;
      end = input_.size();
    }
    input_.erase(0, end);
    return response;
  }

  ClientResponse request(std::string_view method, std::string_view target,
                         std::string_view body = {}, std::string_view extra_headers = {}) {
    std::string text(method);
    text.append(" ").append(target).append(" HTTP/1.1\r\nHost: localhost\r\n");
    text.append(extra_headers);
    text.append("Content-Length: ").append(std::to_string(body.size())).append("\r\n\r\n");
    text.append(body);
    send(text);
    return read_response(method != "HEAD");
  }

 private:
  static void parse_head(const std::string& head, ClientResponse& response) {
    response.status = std::atoi(head.c_str() + head.find(' ') + 1);
    size_t line = head.find("\r\n") + 2;
    while (line < head.size()) {
      const size_t line_end = head.find("\r\n", line);
      const size_t colon = head.find(':', line);
      if (line_end == line || colon == std::string::npos || colon > line_end) break;
      response.headers[to_lower(head.substr(line, colon - line))] =
          head.substr(colon + 2, line_end - colon - 2);
      line = line_end + 2;
    }
  }

  size_t read_chunks(size_t at, ClientResponse& response) {
    for (;;) {
      size_t line_end;
      while ((line_end = input_.find("\r\n", at)) == std::string::npos) {
        if (!read_more()) return input_.size();
      }
      const size_t size = std::strtoul(input_.c_str() + at, nullptr, 16);
      while (input_.size() < line_end + 2 + size + 2) {
        if (!read_more()) return input_.size();
      }
      response.body.append(input_, line_end + 2, size);
      at = line_end + 2 + size + 2;
      if (size == 0) {
        response.complete = true;
        return at;
      }
    }
  }

  int fd_ = -1;
  bool connected_ = false, ended_ = false;
  std::string input_;
};

}  // namespace millrace::net
