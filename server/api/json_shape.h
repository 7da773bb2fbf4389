// A bound on what a JSON body may become in memory, checked on the text before any of it is parsed:
// nesting, the number of values, the members of each object (the parser compares a new member with
// all earlier ones), the elements and string lengths of the top-level fields that have limits of
// their own. One pass, no allocation. It judges size only; whether the text is JSON is for the
// parser. A pure function; any thread.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "server/api/error.h"
#include "server/api/limits.h"

namespace millrace::api {

struct ShapeLimit {
  std::string_view field;
  int64_t max_elements = 0;       // direct elements or members; 0: not bounded here
  size_t max_string_bytes = 0;    // of each string once read; 0: not bounded here
  int64_t max_values = 0;         // values at any depth; 0: they count towards max_json_values
  bool numbers_are_free = false;  // numbers are no elements (token ids of a prompt)
};

std::optional<Error> check_json_shape(std::string_view text, const Limits& limits,
                                      std::span<const ShapeLimit> fields);

}  // namespace millrace::api
