// CHECK and fatal: for mistakes that only our own code can make. They print what was expected and
// abort. Anything that the outside world can cause is an absl::Status instead.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace millrace {

[[noreturn]] inline void fatal(const char* message) {
  std::fprintf(stderr, "fatal: %s\n", message);
  std::abort();
}

[[noreturn]] inline void check_failed(const char* file, int line, const char* expression,
                                      long long left, long long right) {
  std::fprintf(stderr, "%s:%d: check failed: %s (left %lld, right %lld)\n", file, line, expression,
               left, right);
  std::abort();
}

}  // namespace millrace

#define MR_CHECK(condition)                                                                \
  do {                                                                                     \
    if (!(condition)) ::millrace::check_failed(__FILE__, __LINE__, #condition, 0, 0);      \
  } while (false)

#define MR_CHECK_OP(left, op, right)                                                       \
  do {                                                                                     \
    const auto mr_left = (left);                                                           \
    const auto mr_right = (right);                                                         \
    if (!(mr_left op mr_right))                                                            \
      ::millrace::check_failed(__FILE__, __LINE__, #left " " #op " " #right,               \
                               static_cast<long long>(mr_left),                            \
                               static_cast<long long>(mr_right));                          \
  } while (false)
