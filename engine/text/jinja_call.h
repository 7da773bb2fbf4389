// Parameters: the arguments of a built-in function, matched to its parameter names as Python does.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>

#include "engine/text/jinja_value.h"

namespace millrace::jinja {

class Parameters {
 public:
  static constexpr size_t kMax = 6;

  // The first `required` names must be given; nothing beyond `names` may be.
  Parameters(const Arguments& arguments, std::string_view function,
             std::initializer_list<std::string_view> names, size_t required = 0) {
    if (arguments.positional.size() > names.size()) {
      fail(std::string(function) + "() takes at most " + std::to_string(names.size()) +
           " arguments, got " + std::to_string(arguments.positional.size()));
    }
    for (size_t i = 0; i < arguments.positional.size(); ++i) put(i, arguments.positional[i]);
    for (const auto& [name, value] : arguments.named) {
      size_t i = 0;
      while (i < names.size() && names.begin()[i] != name) ++i;
      if (i == names.size()) {
        fail(std::string(function) + "() has no parameter '" + std::string(name) + "'");
      }
      if (has(i)) fail(std::string(function) + "() got '" + std::string(name) + "' twice");
      put(i, value);
    }
    for (size_t i = 0; i < required; ++i) {
      if (!has(i)) {
        fail(std::string(function) + "() needs the argument '" + std::string(names.begin()[i]) +
             "'");
      }
    }
  }

  bool has(size_t i) const { return present_[i]; }
  const Value& operator[](size_t i) const { return values_[i]; }  // None when not given

 private:
  void put(size_t i, const Value& value) {
    values_[i] = value;
    present_[i] = true;
  }

  std::array<Value, kMax> values_;
  std::array<bool, kMax> present_{};
};

}  // namespace millrace::jinja
