// Methods of Python's str, list, tuple and dict that templates may call. Tables fixed at build
// time; a name is resolved once, when the template is compiled.
#pragma once

#include <string_view>

#include "engine/text/jinja_value.h"

namespace millrace::jinja {

// What one attribute name means for each type; null where the type has no such method. Methods
// that change their object are left out: the sandbox makes them undefined.
struct MethodSet {
  Method for_string = nullptr;
  Method for_list = nullptr;  // also tuples and ranges
  Method for_dict = nullptr;

  Method of(const Value& value) const {
    switch (value.kind()) {
      case Kind::kString: return for_string;
      case Kind::kList: return value.as_list().is_sequence() ? for_list : nullptr;
      case Kind::kDict: return for_dict;
      default: return nullptr;
    }
  }
};

MethodSet find_methods(std::string_view name);
Method find_string_method(std::string_view name);

// str.strip and friends; `chars` None strips white space. Used by the trim filter too.
Value strip_text(Heap& heap, const Value& text, const Value& chars, bool left, bool right);
// str.replace; a negative count replaces all.
Value replace_text(Heap& heap, const Value& text, const StringObject& from, const StringObject& to,
                   int64_t count);
enum class CaseMap { kUpper, kLower, kCapitalize, kTitle, kSwap };
Value map_case(Heap& heap, const Value& text, CaseMap map);
// str.splitlines without the line ends, as a list Value.
Value split_lines(Heap& heap, const Value& text, bool keep_ends);

}  // namespace millrace::jinja
