#include "engine/intake.h"

#include <string>
#include <utility>

namespace millrace {

Status Intake::submit(Request request, TimePoint now) {
  const auto tokens = static_cast<int64_t>(request.prompt.size());
  const std::lock_guard lock(mutex_);
  if (batch_.closed) return absl::UnavailableError("the engine is stopping");
  if (queued_requests_ >= limits_.requests)
    return absl::ResourceExhaustedError("the queue is full: " + std::to_string(queued_requests_) +
                                        " requests wait, at most " +
                                        std::to_string(limits_.requests) + " may");
  if (queued_tokens_ + tokens > limits_.tokens)
    return absl::ResourceExhaustedError(
        "the queue is full: " + std::to_string(queued_tokens_) + " prompt tokens wait, " +
        std::to_string(tokens) + " more would pass the limit of " + std::to_string(limits_.tokens));
  if (!open_.insert(request.id).second)
    return absl::AlreadyExistsError("a request with the id " + std::to_string(request.id) +
                                    " is open");
  ++queued_requests_;
  queued_tokens_ += tokens;
  batch_.arrivals.push_back({std::move(request), now});
  num_pending_.fetch_add(1, std::memory_order_relaxed);
  signal();
  return absl::OkStatus();
}

void Intake::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  if (!open_.contains(id) || !cancelled_.insert(id).second) return;
  batch_.cancels.push_back(id);
  signal();
}

void Intake::reset_prefix_cache() {
  const std::lock_guard lock(mutex_);
  batch_.reset_prefix_cache = true;
  signal();
}

void Intake::close() {
  const std::lock_guard lock(mutex_);
  batch_.closed = true;
  signal();
}

int64_t Intake::num_open() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(open_.size());
}

void Intake::signal() {
  has_news_.store(true, std::memory_order_release);
  wake_.notify_one();
}

Intake::Batch Intake::take(std::chrono::milliseconds patience) {
  // A busy engine asks every step; mostly there is nothing, and then no lock is taken.
  if (patience.count() == 0 && !has_news_.load(std::memory_order_acquire)) return {};
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, patience, [this] { return has_news_.load(std::memory_order_relaxed); });
  has_news_.store(false, std::memory_order_relaxed);
  num_pending_.store(0, std::memory_order_relaxed);
  return std::exchange(batch_, Batch{.closed = batch_.closed});
}

void Intake::left_queue(int64_t requests, int64_t tokens) {
  if (requests == 0) return;
  const std::lock_guard lock(mutex_);
  queued_requests_ -= requests;
  queued_tokens_ -= tokens;
}

void Intake::close_ended(const std::vector<TokenEvent>& events) {
  std::unique_lock lock(mutex_, std::defer_lock);
  for (const TokenEvent& event : events) {
    if (event.finish == Finish::none) continue;
    if (!lock.owns_lock()) lock.lock();
    open_.erase(event.id);
    cancelled_.erase(event.id);
  }
}

}  // namespace millrace
