// ScriptedServer: a server on loopback that reads one request after the other and then does what a
// test says, well or badly. One thread for each connection; all have ended when it is destroyed.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace millrace::bench {

// One connection, in the hands of the script.
class ScriptedPeer {
 public:
  ScriptedPeer(int fd, const std::atomic<bool>& stopping) : fd_(fd), stopping_(stopping) {}

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // In pieces of `size` bytes, each in a segment of its own.
  void send_in_pieces(std::string_view bytes, size_t size) {
    for (size_t at = 0; at < bytes.size(); at += size) {
      send(bytes.substr(at, size));
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  // Says nothing until the client leaves or the test ends.
  void hang() {
    char byte;
    while (!stopping_) {
      pollfd state{fd_, POLLIN, 0};
      if (::poll(&state, 1, 10) > 0 && ::recv(fd_, &byte, 1, 0) <= 0) return;
    }
  }
  // The next request's head and body; empty at the end.
  std::string receive() {
    std::string text;
    char buffer[16384];
    while (!whole(text) && !stopping_) {
      pollfd state{fd_, POLLIN, 0};
      if (::poll(&state, 1, 10) <= 0) continue;
      const ssize_t n = ::recv(fd_, buffer, sizeof(buffer), 0);
      if (n <= 0) return {};
      text.append(buffer, static_cast<size_t>(n));
    }
    return text;
  }

 private:
  static bool whole(const std::string& text) {
    const size_t end = text.find("\r\n\r\n");
    if (end == std::string::npos) return false;
    const size_t length = text.find("Content-Length: ");
    const size_t body = length < end ? std::strtoul(text.c_str() + length + 16, nullptr, 10) : 0;
    return text.size() >= end + 4 + body;
  }

  const int fd_;
  const std::atomic<bool>& stopping_;
};

class ScriptedServer {
 public:
  // Called with each request; false closes the connection.
  using Script = std::function<bool(ScriptedPeer& peer, const std::string& request)>;

  explicit ScriptedServer(Script script) : script_(std::move(script)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    ::listen(listener_, 64);
    acceptor_ = std::thread([this] { accept(); });
  }
  ~ScriptedServer() {
    stopping_ = true;
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
    ::close(listener_);
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int connections() const { return connections_; }

 private:
  void accept() {
    while (!stopping_) {
      pollfd state{listener_, POLLIN, 0};
      if (::poll(&state, 1, 10) <= 0) continue;
      const int fd = ::accept(listener_, nullptr, nullptr);
      if (fd < 0) continue;
      ++connections_;
      threads_.emplace_back([this, fd] {
        ScriptedPeer peer(fd, stopping_);
        for (std::string request; !(request = peer.receive()).empty();)
          if (!script_(peer, request)) break;
        ::close(fd);
      });
    }
  }

  const Script script_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> connections_ = 0;
  std::thread acceptor_;
  std::vector<std::thread> threads_;
};

}  // namespace millrace::bench
