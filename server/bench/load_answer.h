// What came back for one request: the bytes with the times at which they were read, and the figures
// taken from them afterwards, so that nothing is parsed while others are being timed. Plain values
// of the thread that runs the load.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/clock.h"

namespace millrace::bench {

// One answer as it arrived. `failure` is an error class if the transport failed: "connect",
// "stream_broken", "timeout".
struct Recording {
  struct Mark {
    TimePoint time;
    size_t end = 0;  // bytes of the body that were there then
  };

  TimePoint start;  // before the connection was made, if one had to be
  TimePoint end;
  bool resent = false;  // an idle connection ended when it was used again, so on a new one
  int status = 0;       // of HTTP; 0: no head was read
  std::string failure;
  std::string message;
  std::string body;  // without its transfer coding
  std::vector<Mark> marks;
};

// The figures of one answer. Times are since the request's start.
struct Answer {
  std::string failure;  // an error class, see read_answer(); empty: a whole answer
  std::string message;  // one sentence on the failure
  double first_s = 0.0;
  double last_s = 0.0;
  std::vector<double> gaps_s;  // between chunks with tokens
  int tokens = 0;              // by the server's count; by chunks where it gives none
  int prompt_tokens = 0;       // by the server's count; 0 where it gives none
  int cached_tokens = 0;       // of the prompt, as far as the server tells

  double e2e_s() const { return last_s; }
  double tpot_s() const { return tokens > 1 ? (last_s - first_s) / (tokens - 1) : 0.0; }
};

// Calls `handle` for each event of a server-sent event stream: its field name ("data", or whatever
// else but a comment stands before the colon), its lines joined by '\n', and the offset behind it.
// An event that the stream's end cuts off is not handed out.
using EventHandler = std::function<void(std::string_view name, std::string_view data, size_t end)>;
void for_each_event(std::string_view stream, const EventHandler& handle);

// Reads a streamed answer of /v1/completions or /v1/chat/completions. Failures besides those of the
// transport: "http_<status>", "error_event", "bad_event" (no JSON), "missing_done", "empty" (no
// chunk with a token). A chunk counts if it carries text, or an unfinished choice without a role:
// a role alone is no token, and neither is a finish reason.
Answer read_answer(const Recording& recording);

}  // namespace millrace::bench
