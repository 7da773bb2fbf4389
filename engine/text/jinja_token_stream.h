// TokenStream: the parser's cursor over a template's tokens. Used by one thread while compiling.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/jinja_error.h"
#include "engine/text/jinja_lexer.h"

namespace millrace::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<TemplateToken> tokens) : tokens_(std::move(tokens)) {}

  const TemplateToken& current() const { return tokens_[at_]; }
  const TemplateToken& after() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  int line() const { return current().line; }
  TemplateToken& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }

  bool is(TokenType type) const { return current().type == type; }
  bool is_op(std::string_view op) const { return is(TokenType::kOperator) && current().text == op; }
  bool is_name(std::string_view name) const {
    return is(TokenType::kName) && current().text == name;
  }
  bool skip_op(std::string_view op) {
    if (!is_op(op)) return false;
    next();
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!is_name(name)) return false;
    next();
    return true;
  }
  void expect_op(std::string_view op) {
    if (!skip_op(op)) fail_here("expected '" + std::string(op) + "'");
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) fail_here("expected '" + std::string(name) + "'");
  }
  std::string expect_identifier() {
    if (!is(TokenType::kName)) fail_here("expected a name");
    return next().text;
  }
  void expect(TokenType type) {
    if (!is(type)) fail_here("expected " + describe({type, 0, ""}));
    next();
  }
  [[noreturn]] void fail_here(const std::string& expected) const {
    fail(expected + ", got " + describe(current()), line());
  }

 private:
  std::vector<TemplateToken> tokens_;  // ends with kEnd
  size_t at_ = 0;
};

}  // namespace millrace::jinja
