#include "server/app/health.h"

namespace millrace::app {

std::optional<std::string> Health::stalled(const EngineStats& engine, double limit) const {
  if (engine.no_progress_seconds > limit) return "the engine has work but makes no progress";
  // An idle loop waits for its inbox and need not turn.
  const bool has_work = engine.running + engine.waiting > 0;
  if (has_work && engine.heartbeat_age_seconds > limit) return "the engine's loop does not turn";
  return std::nullopt;
}

std::optional<std::string> Health::not_ready(const EngineStats* engine) const {
  switch (state_) {
    case ServingState::loading: return "the model is loading";
    case ServingState::draining: return "the server is draining";
    case ServingState::serving: break;
  }
  if (engine == nullptr) return "there is no engine";
  return stalled(*engine, options_.stall_seconds);
}

std::optional<std::string> Health::not_live(const EngineStats* engine, TimePoint now) const {
  if (engine != nullptr) return stalled(*engine, options_.stall_seconds * options_.liveness_factor);
  if (state_ == ServingState::loading &&
      seconds_between(load_progress_, now) > options_.load_stall_seconds) {
    return "loading the model makes no progress";
  }
  return std::nullopt;
}

}  // namespace millrace::app
