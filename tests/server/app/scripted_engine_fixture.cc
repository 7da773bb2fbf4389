#include <chrono>

#include "tests/server/app/byte_tokenizer.h"
#include "tests/server/app/scripted_engine.h"

namespace millrace::app {

ScriptedEngine::ScriptedEngine(EventSink sink)
    : sink_(std::move(sink)), thread_([this] { run(); }) {}

ScriptedEngine::~ScriptedEngine() { stop(); }

Status ScriptedEngine::submit(Request request) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return absl::UnavailableError("The engine has stopped.");
  if (!refusal_.ok()) return refusal_;
  ids_.push_back(request.id);
  Sequence& sequence = sequences_[request.id];
  sequence.request = std::move(request);
  sequence.script = script_;
  sequence.endless = endless_;
  sequence.fail_at = fail_at_;
  wake_.notify_all();
  return absl::OkStatus();
}

void ScriptedEngine::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  if (!found->second.cancelled) ++cancelled_;
  found->second.cancelled = true;
  wake_.notify_all();
}

EngineStats ScriptedEngine::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  const auto live = static_cast<int64_t>(sequences_.size());
  stats.running = paused_ ? 0 : live;
  stats.waiting = paused_ ? live : 0;
  stats.kv_blocks_total = 100;
  stats.kv_blocks_used = live;
  return stats;
}

void ScriptedEngine::set_script(std::string text, bool endless) {
  const std::lock_guard lock(mutex_);
  script_ = std::move(text);
  endless_ = endless;
}

void ScriptedEngine::set_paused(bool paused) {
  const std::lock_guard lock(mutex_);
  paused_ = paused;
  wake_.notify_all();
}

void ScriptedEngine::set_refusal(Status status) {
  const std::lock_guard lock(mutex_);
  refusal_ = std::move(status);
}

void ScriptedEngine::fail_after(int64_t tokens) {
  const std::lock_guard lock(mutex_);
  fail_at_ = tokens;
}

void ScriptedEngine::set_health(double heartbeat_age, double no_progress) {
  const std::lock_guard lock(mutex_);
  stats_.heartbeat_age_seconds = heartbeat_age;
  stats_.no_progress_seconds = no_progress;
}

void ScriptedEngine::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

int64_t ScriptedEngine::live() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(sequences_.size());
}

int64_t ScriptedEngine::cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

std::vector<RequestId> ScriptedEngine::ids() const {
  const std::lock_guard lock(mutex_);
  return ids_;
}

void ScriptedEngine::end(Sequence& sequence, Finish finish, TokenEvent event,
                         std::vector<TokenEvent>& events) {
  event.finish = finish;
  if (sequence.generated == 0 && event.cached_tokens < 0) event.cached_tokens = -1;
  switch (finish) {
    case Finish::stop: ++stats_.finished_stop; break;
    case Finish::length: ++stats_.finished_length; break;
    case Finish::error: ++stats_.finished_error; break;
    default: ++stats_.finished_aborted; break;
  }
  events.push_back(std::move(event));
}

bool ScriptedEngine::step(Sequence& sequence, std::vector<TokenEvent>& events) {
  TokenEvent event;
  event.id = sequence.request.id;
  if (sequence.cancelled || stopping_) {
    end(sequence, Finish::aborted, std::move(event), events);
    return true;
  }
  if (sequence.generated == sequence.fail_at) {
    event.error = "a scripted fault";
    end(sequence, Finish::error, std::move(event), events);
    return true;
  }
  if (sequence.generated == 0) {
    event.cached_tokens = 0;
    stats_.prompt_tokens += static_cast<int64_t>(sequence.request.prompt.size());
  }
  const auto at = static_cast<size_t>(sequence.generated);
  const bool at_end = !sequence.endless && at >= sequence.script.size();
  event.token = at_end ? ByteTokenizer::kEnd
                       : static_cast<unsigned char>(sequence.script[at % sequence.script.size()]);
  ++sequence.generated;
  ++stats_.generated_tokens;
  if (at_end) {
    end(sequence, Finish::stop, std::move(event), events);
    return true;
  }
  if (sequence.generated >= sequence.request.stop.max_tokens) {
    end(sequence, Finish::length, std::move(event), events);
    return true;
  }
  events.push_back(std::move(event));
  return false;
}

void ScriptedEngine::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    std::vector<TokenEvent> events;
    for (auto it = sequences_.begin(); it != sequences_.end();) {
      const bool scheduled = !paused_ || it->second.cancelled || stopping_;
      it = scheduled && step(it->second, events) ? sequences_.erase(it) : std::next(it);
    }
    if (!events.empty()) {
      ++stats_.steps;
      stats_.computed_tokens += static_cast<int64_t>(events.size());
      lock.unlock();
      sink_(std::move(events));
      lock.lock();
    }
    if (stopping_ && sequences_.empty()) return;
    wake_.wait_for(lock, std::chrono::milliseconds(1));
  }
}

}  // namespace millrace::app
