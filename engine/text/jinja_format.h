// Python's two string formatting languages, as far as templates use them: "..." % values and
// "...".format(...).
#pragma once

#include "engine/text/jinja_value.h"

namespace millrace::jinja {

// `values` is a tuple, a dict for %(name)s, or a single value.
Value percent_format(Heap& heap, const StringObject& format, const Value& values);
Value brace_format(Interpreter& interpreter, const Value& format, const Arguments& arguments);

}  // namespace millrace::jinja
