// Compiles a template's text into its tree. Pure function; throws Failure with the line and the
// construct that is not understood.
#pragma once

#include <memory>
#include <string_view>

#include "engine/text/jinja_ast.h"

namespace millrace::jinja {

std::unique_ptr<Template> parse_template(std::string_view source);

}  // namespace millrace::jinja
