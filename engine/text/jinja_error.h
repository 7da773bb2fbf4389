// How template code reports failure inside the Jinja implementation: one exception type that never
// leaves it (jinja_render.h turns it into a Status). Values, thrown and caught on one thread.
#pragma once

#include <string>
#include <utility>

namespace millrace::jinja {

struct Failure {
  enum class Kind { kInvalid, kLimit };
  Kind kind = Kind::kInvalid;
  int line = 0;  // 0: not known yet, the interpreter fills it in
  std::string message;
};

[[noreturn]] inline void fail(std::string message, int line = 0) {
  throw Failure{Failure::Kind::kInvalid, line, std::move(message)};
}

[[noreturn]] inline void fail_limit(std::string message) {
  throw Failure{Failure::Kind::kLimit, 0, std::move(message)};
}

}  // namespace millrace::jinja
