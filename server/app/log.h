// Logger: one line per record, as JSON or as text, written by a thread of its own so that a slow
// reader of stderr never delays serving. Bounded: when the writer falls behind, records are dropped
// and counted. Any thread may log. Never given prompt text, answers or keys.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace millrace::app {

enum class LogLevel : uint8_t { debug, info, warning, error };
enum class LogFormat : uint8_t { json, text };

using LogValue = std::variant<std::string, int64_t, double, bool>;
using LogFields = std::vector<std::pair<std::string_view, LogValue>>;

class Logger {
 public:
  // Writes to the file descriptor, which it does not own.
  Logger(LogLevel level, LogFormat format, int fd);
  ~Logger();  // writes what is left

  void log(LogLevel level, std::string_view message, const LogFields& fields = {});
  int64_t dropped() const;
  // Waits, for at most a second, until what has been logged is written.
  void flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::app
