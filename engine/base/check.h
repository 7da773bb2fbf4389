// ensure: for mistakes that only our own code can make. It prints what was expected and where, and
// aborts. Anything that the outside world can cause is a Status instead. Any thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <source_location>

namespace millrace {

inline void ensure(bool condition, const char* what,
                   std::source_location where = std::source_location::current()) {
  if (condition) [[likely]]
    return;
  std::fprintf(stderr, "%s:%u: expected: %s\n", where.file_name(), where.line(), what);
  std::abort();
}

inline void ensure_equal(int64_t left, int64_t right, const char* what,
                         std::source_location where = std::source_location::current()) {
  if (left == right) [[likely]]
    return;
  std::fprintf(stderr, "%s:%u: expected: %s (left %lld, right %lld)\n", where.file_name(),
               where.line(), what, static_cast<long long>(left), static_cast<long long>(right));
  std::abort();
}

}  // namespace millrace
