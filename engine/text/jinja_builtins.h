// The filters, tests and global functions of Jinja and of transformers' renderer, by name. Tables
// fixed at build time; a name is resolved once, when the template is compiled.
#pragma once

#include <string_view>

#include "engine/text/jinja_value.h"

namespace millrace::jinja {

struct NamedFunction {
  std::string_view name;
  Method function;
};

// Null when there is none. A test returns a bool Value.
Method find_filter(std::string_view name);
Method find_test(std::string_view name);
Method find_text_filter(std::string_view name);
Method find_sequence_filter(std::string_view name);

// The global function of that name, absent when there is none.
Value find_global(std::string_view name);

}  // namespace millrace::jinja
