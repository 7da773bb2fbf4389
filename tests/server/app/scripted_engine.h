// ScriptedEngine: an EngineClient that emits a given text byte by byte, one byte of every running
// request per step, on a thread of its own. The test decides when it steps, what it refuses and
// what its statistics say.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/client/client.h"

namespace millrace::app {

class ScriptedEngine final : public EngineClient {
 public:
  explicit ScriptedEngine(EventSink sink);
  ~ScriptedEngine() override;

  Status submit(Request request) override;
  void cancel(RequestId id) override;
  EngineStats stats() const override;
  void reset_prefix_cache() override {}

  // What every request submitted from now on answers; then it ends. `endless` repeats it.
  void set_script(std::string text, bool endless = false);
  void set_paused(bool paused);     // nothing is scheduled, requests wait
  void set_refusal(Status status);  // of later submits
  void fail_after(int64_t tokens);  // later requests end with an error after so many
  void set_health(double heartbeat_age, double no_progress);
  void stop();  // ends all as aborted

  int64_t live() const;  // submitted and not ended
  int64_t cancelled() const;
  std::vector<RequestId> ids() const;  // of all requests that were taken

 private:
  struct Sequence {
    Request request;
    std::string script;
    bool endless = false;
    int64_t generated = 0;
    int64_t fail_at = -1;
    bool cancelled = false;
  };

  void run();
  // Called with the lock held. True if the sequence has ended.
  bool step(Sequence& sequence, std::vector<TokenEvent>& events);
  void end(Sequence& sequence, Finish finish, TokenEvent event, std::vector<TokenEvent>& events);

  const EventSink sink_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<RequestId, Sequence> sequences_;
  std::vector<RequestId> ids_;
  std::string script_ = "Hello";
  bool endless_ = false, paused_ = false, stopping_ = false;
  int64_t fail_at_ = -1, cancelled_ = 0;
  Status refusal_;
  EngineStats stats_;
  std::thread thread_;
};

}  // namespace millrace::app
