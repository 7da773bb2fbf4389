// Named shape checks at the front door of every op: a Size binds on first use and must agree
// afterwards. A mismatch is our own mistake: it aborts with the tensor's and the dimension's name.
#pragma once

#include <cstdint>
#include <cstdio>
#include <initializer_list>

#include "kernels/core/tensor.h"

namespace millrace {

struct Size {
  const char* name;
  int64_t value = -1;  // -1: not bound yet
};

// A dimension of a checked shape: a named Size or a fixed number.
struct Extent {
  Extent(Size& s) : size(&s) {}                                  // NOLINT(runtime/explicit)
  Extent(int64_t n) : fixed(n) {}                                // NOLINT(runtime/explicit)
  Size* size = nullptr;
  int64_t fixed = 0;
};

inline void expect(const char* tensor, const Tensor& t, DType dtype,
                   std::initializer_list<Extent> extents) {
  const auto fail = [&](const char* what, long long found, long long expected) {
    std::fprintf(stderr, "%s: %s is %lld, expected %lld\n", tensor, what, found, expected);
    std::abort();
  };
  if (t.dtype != dtype) fail("dtype", static_cast<int>(t.dtype), static_cast<int>(dtype));
  if (t.rank != static_cast<int>(extents.size()))
    fail("rank", t.rank, static_cast<long long>(extents.size()));
  int i = 0;
  for (const Extent& e : extents) {
    const int64_t found = t.dim(i++);
    if (!e.size) {
      if (found != e.fixed) fail("a dimension", found, e.fixed);
    } else if (e.size->value < 0) {
      e.size->value = found;
    } else if (e.size->value != found) {
      fail(e.size->name, found, e.size->value);
    }
  }
}

inline void expect_size(const char* what, int64_t found, const Size& size) {
  if (found == size.value) return;
  std::fprintf(stderr, "%s: %s is %lld, expected %lld\n", what, size.name,
               static_cast<long long>(found), static_cast<long long>(size.value));
  std::abort();
}

}  // namespace millrace
