// Scope guards of the interpreter: they put back the scope and the output that a block replaced,
// also when it fails. Used by its statement half only.
#pragma once

#include <utility>

#include "engine/text/jinja_interpreter.h"

namespace millrace::jinja {

class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& interpreter, Value scope)
      : interpreter_(interpreter), outer_(std::exchange(interpreter.scope_, std::move(scope))) {}
  ~ScopeGuard() { interpreter_.scope_ = std::move(outer_); }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Interpreter& interpreter_;
  Value outer_;
};

class Interpreter::OutputGuard {
 public:
  OutputGuard(Interpreter& interpreter, TextBuilder& out)
      : interpreter_(interpreter), outer_(std::exchange(interpreter.out_, &out)) {}
  ~OutputGuard() { interpreter_.out_ = outer_; }
  OutputGuard(const OutputGuard&) = delete;
  OutputGuard& operator=(const OutputGuard&) = delete;

 private:
  Interpreter& interpreter_;
  TextBuilder* outer_;
};

}  // namespace millrace::jinja
