// LoadClient: one HTTP/1.1 connection of the load generator, used for one exchange after another
// while the server keeps it open. It notes when bytes were read and parses nothing but the framing.
// Owned by the run and by its pending operation; lives on the thread that runs `io`.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "server/bench/load_answer.h"

namespace millrace::bench {

// Where the load goes: "http://host[:port][/prefix]", resolved once.
struct Target {
  std::string url;  // as given, without a trailing '/'
  std::string host;
  std::string port;
  std::string prefix;  // of every path; empty, or "/..."
  std::string api_key;
  std::vector<boost::asio::ip::tcp::endpoint> endpoints;

  // A whole request; `body` empty: GET.
  std::string request(std::string_view path, std::string_view body) const;
};

StatusOr<Target> resolve_target(const std::string& base_url, const std::string& api_key);

class LoadClient : public std::enable_shared_from_this<LoadClient> {
 public:
  using Done = std::function<void(Recording&& recording)>;

  LoadClient(boost::asio::io_context& io, const Target& target);  // `target` outlives it
  ~LoadClient();

  // Sends `request` and reads its answer; connects first where that is needed. `done` is called
  // exactly once, unless abort() comes first, and never within send().
  void send(std::string request, std::chrono::duration<double> timeout, Done done);
  // Ends the exchange without a word to anyone.
  void abort();

  // False once the server has closed the connection, or has said that it will.
  bool reusable();

 private:
  struct Parser;

  void connect(size_t endpoint);
  void reconnect();
  void write();
  void read();
  void on_bytes(size_t n, bool end_of_input);
  void finish(std::string failure, std::string message);

  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  const Target& target_;
  std::unique_ptr<Parser> parser_;  // of the exchange that runs
  std::string request_;
  Recording recording_;
  Done done_;
  uint64_t exchange_ = 0;  // handlers of an earlier one do nothing
  bool keep_alive_ = false;
  bool reused_ = false;  // the connection is older than the exchange that runs
};

// One GET, waited for. The error says what was asked for and what came instead.
StatusOr<std::string> http_get(const Target& target, std::string_view path,
                               std::chrono::duration<double> timeout);

}  // namespace millrace::bench
