// Health: what /livez and /readyz answer, decided from the engine's own heartbeat and progress and
// from the state of the start and the drain. Pure decisions over values; io thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/base/clock.h"
#include "engine/client/client.h"

namespace millrace::app {

enum class ServingState : uint8_t { loading, serving, draining };

struct HealthOptions {
  // Work that makes no progress for so long means that the engine hangs.
  double stall_seconds = 30.0;
  // Liveness is slower to give up, because a restart loads the model again.
  double liveness_factor = 4.0;
  // A load that moves no byte for so long has failed.
  double load_stall_seconds = 600.0;
};

class Health {
 public:
  Health(HealthOptions options, TimePoint now) : options_(options), load_progress_(now) {}

  void note_load_progress(TimePoint now) { load_progress_ = now; }
  void set_state(ServingState state) { state_ = state; }
  ServingState state() const { return state_; }

  // Nothing if it is well, else why not. `engine` is null while there is none.
  std::optional<std::string> not_ready(const EngineStats* engine) const;
  std::optional<std::string> not_live(const EngineStats* engine, TimePoint now) const;

 private:
  std::optional<std::string> stalled(const EngineStats& engine, double limit) const;

  HealthOptions options_;
  ServingState state_ = ServingState::loading;
  TimePoint load_progress_;
};

}  // namespace millrace::app
