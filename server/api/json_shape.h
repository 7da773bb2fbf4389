// A bound on what a JSON body may become in memory, checked on the text before any of it is parsed:
// nesting, the number of values under each top-level field, the elements and string lengths of the
// fields that have limits of their own. One pass, no allocation. It judges size only; whether the
// text is JSON is for the parser.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "server/api/error.h"
#include "server/api/limits.h"

namespace millrace::api {

struct ShapeLimit {
  std::string_view field;
  int64_t max_elements = 0;      // direct members; 0: not bounded here
  size_t max_string_bytes = 0;   // of each string; 0: not bounded here
  int64_t max_values = 0;        // values at any depth; 0: Limits::max_json_values
  bool numbers_are_free = false; // numbers are no elements (token ids of a prompt)
};

std::optional<Error> check_json_shape(std::string_view text, const Limits& limits,
                                      std::span<const ShapeLimit> fields);

}  // namespace millrace::api
