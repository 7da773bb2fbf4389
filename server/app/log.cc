#include "server/app/log.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <ctime>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

namespace millrace::app {

namespace {

constexpr size_t kMaxQueuedLines = 8192;

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return "debug";
    case LogLevel::info: return "info";
    case LogLevel::warning: return "warning";
    case LogLevel::error: return "error";
  }
  return "info";
}

std::string wall_clock() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  char text[40];
  const size_t size = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  char fraction[32];
  std::snprintf(fraction, sizeof(fraction), ".%03ldZ", now.tv_nsec / 1'000'000);
  return std::string(text, size) + fraction;
}

nlohmann::ordered_json to_json(const LogValue& value) {
  return std::visit([](const auto& v) { return nlohmann::ordered_json(v); }, value);
}

std::string dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string format_line(LogFormat format, LogLevel level, std::string_view message,
                        const LogFields& fields) {
  if (format == LogFormat::json) {
    nlohmann::ordered_json line;
    line["time"] = wall_clock();
    line["level"] = level_name(level);
    line["message"] = message;
    for (const auto& [name, value] : fields) line[std::string(name)] = to_json(value);
    return dump(line) + "\n";
  }
  std::string line = wall_clock() + " " + level_name(level) + " " + std::string(message);
  for (const auto& [name, value] : fields) {
    line.append(" ").append(name).append("=").append(dump(to_json(value)));
  }
  return line + "\n";
}

}  // namespace

struct Logger::Impl {
  LogLevel level;
  LogFormat format;
  int fd;

  mutable std::mutex mutex;
  std::condition_variable wake, written;
  std::deque<std::string> lines;  // guarded by mutex
  int64_t dropped = 0;            // guarded by mutex
  bool stopping = false;          // guarded by mutex
  bool writing = false;           // guarded by mutex
  std::thread thread;

  void write_line(const std::string& line) const {
    size_t at = 0;
    while (at < line.size()) {
      const ssize_t n = ::write(fd, line.data() + at, line.size() - at);
      if (n <= 0) return;
      at += static_cast<size_t>(n);
    }
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [this] { return stopping || !lines.empty(); });
      if (lines.empty()) return;
      std::deque<std::string> batch;
      batch.swap(lines);
      writing = true;
      lock.unlock();
      for (const std::string& line : batch) write_line(line);
      lock.lock();
      writing = false;
      written.notify_all();
    }
  }
};

Logger::Logger(LogLevel level, LogFormat format, int fd) : impl_(std::make_unique<Impl>()) {
  impl_->level = level;
  impl_->format = format;
  impl_->fd = fd;
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

Logger::~Logger() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->wake.notify_one();
  impl_->thread.join();
}

void Logger::log(LogLevel level, std::string_view message, const LogFields& fields) {
  if (level < impl_->level) return;
  std::string line = format_line(impl_->format, level, message, fields);
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->lines.size() >= kMaxQueuedLines) {
      ++impl_->dropped;
      return;
    }
    impl_->lines.push_back(std::move(line));
  }
  impl_->wake.notify_one();
}

void Logger::flush() {
  std::unique_lock lock(impl_->mutex);
  impl_->written.wait_for(lock, std::chrono::seconds(1),
                          [this] { return impl_->lines.empty() && !impl_->writing; });
}

int64_t Logger::dropped() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->dropped;
}

}  // namespace millrace::app
