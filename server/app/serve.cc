#include "server/app/serve.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <thread>

#include "server/app/progress_bar.h"

namespace millrace::app {

namespace {

constexpr std::chrono::milliseconds kPoll{50};
constexpr std::chrono::milliseconds kSendLimit{1000};
constexpr int kSignalExitBase = 128;

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

// Waits for SIGTERM or SIGINT; 0 if none came within the time.
int wait_for_signal(std::chrono::milliseconds limit) {
  const sigset_t set = stop_signals();
  const timespec time{limit.count() / 1000, (limit.count() % 1000) * 1'000'000};
  const int signal = sigtimedwait(&set, nullptr, &time);
  return signal > 0 ? signal : 0;
}

// The model, its engine, and the thread that brings them up.
class Loader {
 public:
  enum class State : uint8_t { loading, ready, failed };

  Loader(const ServeOptions& options, Service& service, Logger& logger)
      : options_(options), service_(service), logger_(logger), thread_([this] { load(); }) {}

  State state() const { return state_.load(); }

  // After loading has ended. Every open request gets its last event.
  void stop_engine() {
    thread_.join();
    if (engine_) engine_->stop();
  }
  // After the service has stopped.
  void release() {
    engine_.reset();
    model_.reset();
  }

 private:
  void load() {
    const Status status = try_load();
    if (!status.ok()) {
      logger_.log(LogLevel::error, "the model cannot be served",
                  {{"error", status_message(status)}});
    }
    state_.store(status.ok() ? State::ready : State::failed);
  }

  Status try_load() {
    const TimePoint start = Clock::now();
    {
      ProgressBar bar("Loading");
      auto loaded = LocalModel::load(options_.model, [&](uint64_t done, uint64_t total) {
        service_.note_load_progress();
        bar.update(done, total);
      });
      if (!loaded.ok()) return loaded.status();
      model_ = *std::move(loaded);
    }
    service_.note_start_phase("load", seconds_between(start, Clock::now()));
    auto engine = model_->start_engine(service_.sink());
    if (!engine.ok()) return engine.status();
    engine_ = *std::move(engine);
    const MemoryPlan& memory = model_->memory();
    service_.set_ready(model_->context(), *engine_,
                       {.block_size = memory.block_size,
                        .num_blocks = memory.kv_blocks,
                        .max_model_len = memory.max_model_len,
                        .prefix_caching = options_.model.enable_prefix_caching,
                        .cache_dtype = options_.model.kv_cache_dtype});
    const double seconds = seconds_between(start, Clock::now());
    service_.note_start_phase("ready", seconds);
    logger_.log(LogLevel::info, "ready",
                {{"model", model_->context().options().model_names.front()},
                 {"max_model_len", memory.max_model_len},
                 {"kv_blocks", memory.kv_blocks},
                 {"seconds", seconds}});
    return absl::OkStatus();
  }

  const ServeOptions& options_;
  Service& service_;
  Logger& logger_;
  std::atomic<State> state_{State::loading};
  // Written by the thread, read after it has been joined.
  std::unique_ptr<LocalModel> model_;
  std::unique_ptr<Engine> engine_;
  std::thread thread_;
};

// True if a second signal cut it short.
bool drain(const ServeOptions& options, Service& service, Logger& logger) {
  const auto milliseconds = [](double seconds) {
    return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000.0));
  };
  logger.log(LogLevel::info, "draining", {{"open_answers", service.open_answers()}});
  service.begin_drain();
  if (options.drain_delay_seconds > 0.0 &&
      wait_for_signal(milliseconds(options.drain_delay_seconds)) != 0) {
    return true;
  }
  service.stop_accepting();
  const TimePoint deadline = Clock::now() + milliseconds(options.shutdown_timeout_seconds);
  while (service.open_answers() > 0 && Clock::now() < deadline) {
    if (wait_for_signal(kPoll) != 0) return true;
  }
  return false;
}

void end_answers(Service& service) {
  service.stop_accepting();
  service.fail_remaining("The server is shutting down. Send the request again.");
  service.wait_until_sent(kSendLimit);
}

}  // namespace

int run_serve(const ServeOptions& options) {
  // Blocked in every thread, so that only wait_for_signal() sees them.
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);

  Logger logger(options.log_level, options.log_format, STDERR_FILENO);
  Service service(options.service, logger);
  const Status started = service.start();
  if (!started.ok()) {
    logger.log(LogLevel::error, "the server cannot start", {{"error", status_message(started)}});
    return 1;
  }
  logger.log(LogLevel::info, "listening",
             {{"host", options.service.http.host},
              {"port", int64_t{service.port()}},
              {"uds", options.service.http.uds},
              {"keys_required", options.service.keys.required()}});

  Loader loader(options, service, logger);
  int signal = 0;
  while (signal == 0 && loader.state() != Loader::State::failed) signal = wait_for_signal(kPoll);

  const bool failed = signal == 0;
  const bool second_signal = !failed && drain(options, service, logger);
  end_answers(service);
  if (second_signal || loader.state() == Loader::State::loading) {
    // Neither a step nor a load can be interrupted, and "at once" must not wait for either.
    logger.flush();
    std::_Exit(second_signal ? kSignalExitBase + signal : 0);
  }
  loader.stop_engine();
  service.stop();
  loader.release();
  logger.log(LogLevel::info, "stopped");
  return failed ? 1 : 0;
}

}  // namespace millrace::app
