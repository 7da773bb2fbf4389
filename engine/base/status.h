// Status and StatusOr for anything that the outside world can cause. The code chooses the HTTP
// status later; the message is one sentence: what, where, what is legal.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace millrace {

using absl::Status;
using absl::StatusOr;

inline std::string status_message(const Status& status) { return std::string(status.message()); }

}  // namespace millrace

// Early return of a failed Status.
#define MR_RETURN_IF_ERROR(expression)                       \
  do {                                                       \
    if (::absl::Status mr_status = (expression); !mr_status.ok()) return mr_status; \
  } while (false)

#define MR_CONCAT_(a, b) a##b
#define MR_CONCAT(a, b) MR_CONCAT_(a, b)
// MR_ASSIGN_OR_RETURN(auto x, f()): x = value of the StatusOr, or early return of its status.
#define MR_ASSIGN_OR_RETURN(declaration, expression) \
  MR_ASSIGN_OR_RETURN_(MR_CONCAT(mr_or_, __LINE__), declaration, expression)
#define MR_ASSIGN_OR_RETURN_(name, declaration, expression) \
  auto name = (expression);                                 \
  if (!name.ok()) return name.status();                     \
  declaration = *std::move(name)
