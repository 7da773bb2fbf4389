#include "server/bench/load_run.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <ctime>
#include <unordered_set>

namespace millrace::bench {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

namespace {

// Answers are parsed after the run; above this many bytes each is parsed when it ends.
constexpr size_t kHeldBytes = size_t{256} << 20;

double cpu_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

// Each request that runs holds a socket; the usual soft limit is 1,024.
void allow_many_sockets() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

class LoadRun {
 public:
  LoadRun(const Target& target, const std::vector<LoadRequest>& requests, const RunOptions& options)
      : target_(target),
        requests_(requests),
        options_(options),
        due_timer_(io_),
        signals_(io_, SIGINT, SIGTERM),
        recordings_(requests.size()) {
    result_.requests.resize(requests.size());
  }

  RunResult run() {
    allow_many_sockets();
    signals_.async_wait([this](const ErrorCode& error, int) {
      if (!error) interrupt();
    });
    const double cpu_before = cpu_seconds();
    start_ = Clock::now();
    if (requests_.empty()) signals_.cancel();
    start_due();
    io_.run();
    result_.duration_s = last_end_s_;
    if (result_.interrupted) result_.duration_s = seconds_between(start_, Clock::now());
    result_.generator_cpu_s = cpu_seconds() - cpu_before;
    for (size_t i = 0; i < recordings_.size(); ++i)
      if (result_.requests[i].finished && !parsed(i)) parse(i);
    return std::move(result_);
  }

 private:
  void start_due() {
    while (next_ < requests_.size() && running_.size() < room()) {
      const double now = seconds_between(start_, Clock::now());
      if (requests_[next_].due_s > now) return wait_until(requests_[next_].due_s);
      begin(next_++);
    }
  }
  size_t room() const { return static_cast<size_t>(options_.max_concurrency); }

  void wait_until(double due_s) {
    due_timer_.expires_at(
        start_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(due_s)));
    due_timer_.async_wait([this](const ErrorCode& error) {
      if (!error) start_due();
    });
  }

  void begin(size_t i) {
    const std::shared_ptr<LoadClient> client = take_client();
    running_.insert(client);
    result_.peak_concurrency =
        std::max(result_.peak_concurrency, static_cast<int>(running_.size()));
    const LoadRequest& request = requests_[i];
    client->send(target_.request(request.path, request.body),
                 std::chrono::duration<double>(options_.timeout_s),
                 [this, i, client = client.get()](Recording&& recording) {
                   on_answer(i, client->shared_from_this(), std::move(recording));
                 });
  }

  std::shared_ptr<LoadClient> take_client() {
    while (!idle_.empty()) {
      std::shared_ptr<LoadClient> client = std::move(idle_.back());
      idle_.pop_back();
      if (client->reusable()) return client;
    }
    return std::make_shared<LoadClient>(io_, target_);
  }

  void on_answer(size_t i, const std::shared_ptr<LoadClient>& client, Recording&& recording) {
    RequestResult& result = result_.requests[i];
    result.finished = true;
    result.resent = recording.resent;
    result.start_s = seconds_between(start_, recording.start);
    result.end_s = last_end_s_ = seconds_between(start_, recording.end);
    held_bytes_ += recording.body.size();
    recordings_[i] = std::move(recording);
    if (held_bytes_ > kHeldBytes) parse(i);
    running_.erase(client);
    idle_.push_back(client);
    if (options_.on_progress) options_.on_progress(++done_, requests_.size());
    start_due();
    if (running_.empty() && next_ == requests_.size()) signals_.cancel();
  }

  bool parsed(size_t i) const { return recordings_[i].start == TimePoint{}; }

  void parse(size_t i) {
    RequestResult& result = result_.requests[i];
    result.answer = read_answer(recordings_[i]);
    result.expected_tokens = requests_[i].expected_tokens;
    result.prompt_tokens =
        result.answer.prompt_tokens > 0 ? result.answer.prompt_tokens : requests_[i].prompt_tokens;
    held_bytes_ -= recordings_[i].body.size();
    recordings_[i] = {};
  }

  void interrupt() {
    result_.interrupted = true;
    due_timer_.cancel();
    for (const auto& client : running_) client->abort();
    io_.stop();
  }

  const Target& target_;
  const std::vector<LoadRequest>& requests_;
  const RunOptions& options_;
  asio::io_context io_{1};
  asio::steady_timer due_timer_;
  asio::signal_set signals_;
  std::unordered_set<std::shared_ptr<LoadClient>> running_;
  std::vector<std::shared_ptr<LoadClient>> idle_;
  std::vector<Recording> recordings_;  // of answers that are not parsed yet
  RunResult result_;
  TimePoint start_;
  size_t next_ = 0, done_ = 0, held_bytes_ = 0;
  double last_end_s_ = 0.0;
};

}  // namespace

RunResult run_load(const Target& target, const std::vector<LoadRequest>& requests,
                   const RunOptions& options) {
  return LoadRun(target, requests, options).run();
}

}  // namespace millrace::bench
