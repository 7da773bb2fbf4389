// ExpressionParser: Jinja's expression grammar over a token stream. The statement parser owns it
// and shares its template and scopes; one thread, while compiling.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/jinja_ast.h"
#include "engine/text/jinja_token_stream.h"

namespace millrace::jinja {

class ExpressionParser {
 public:
  ExpressionParser(TokenStream& stream, Template& out) : stream_(stream), out_(out) {}

  const Expr* parse_expression(bool with_conditional = true);
  // One expression, or a tuple of several without parentheses. `stop` is a name that ends it.
  const Expr* parse_tuple(bool with_conditional = true, std::string_view stop = {},
                          bool in_parentheses = false);
  // A chain "f(x)|g": the innermost subject is `subject`, null in a filter block.
  const Expr* parse_filters(const Expr* subject);
  const Expr* parse_unary(bool with_filters = true);

  uint32_t name_id(const std::string& name);
  template <class T, class... A>
  T* make(int line, A&&... args) {
    auto node = std::make_unique<T>(std::forward<A>(args)...);
    T* raw = node.get();
    raw->line = line;
    out_.nodes.push_back(std::move(node));
    return raw;
  }

  // Counts one level of source nesting for as long as it lives.
  class Level {
   public:
    explicit Level(ExpressionParser& parser);
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

  // What the statement parser tells about where the expression stands.
  std::vector<MacroStatement*> macros;  // the macros around it
  std::vector<ForStatement*> loops;     // the loops around it
  // Inside a conditional part an unknown filter fails only when reached.
  bool conditional = false;

 private:
  const Expr* parse_conditional();
  const Expr* parse_or();
  const Expr* parse_and();
  const Expr* parse_not();
  const Expr* parse_compare();
  const Expr* parse_sum();
  const Expr* parse_concat();
  const Expr* parse_product();
  const Expr* parse_power();
  const Expr* parse_primary();
  const Expr* parse_name();
  const Expr* parse_string();
  const Expr* parse_number();
  const Expr* parse_list();
  const Expr* parse_dict();
  const Expr* parse_postfix(const Expr* expr);
  const Expr* parse_subscript(const Expr* object);
  const Expr* parse_bracket(const Expr* object);
  const Expr* parse_slice_or_key(const Expr* object, int line);
  const Expr* parse_filter_expr(const Expr* expr);
  const Expr* parse_test(const Expr* subject);
  void parse_arguments(CallArguments& arguments);
  std::string parse_dotted_name();
  Value literal(std::string text);
  const Expr* constant(Value value, int line);

  // Sets the height over the children and returns the node.
  template <class T>
  const Expr* finish(T* node, std::initializer_list<const Expr*> children) {
    for (const Expr* child : children) {
      if (child != nullptr) raise(node, child);
    }
    return node;
  }
  void raise(Expr* node, const Expr* child);
  void raise(Expr* node, const CallArguments& arguments);

  TokenStream& stream_;
  Template& out_;
  int depth_ = 0;
};

}  // namespace millrace::jinja
