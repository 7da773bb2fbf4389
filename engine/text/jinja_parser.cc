#include "engine/text/jinja_parser.h"

#include <initializer_list>

#include "engine/text/jinja_expression_parser.h"

namespace millrace::jinja {
namespace {

bool is_literal_name(const std::string& name) {
  for (const char* word : {"true", "false", "none", "True", "False", "None"}) {
    if (name == word) return true;
  }
  return false;
}

class Parser {
 public:
  Parser(std::vector<TemplateToken> tokens, Template& out)
      : stream_(std::move(tokens)), out_(out), expressions_(stream_, out) {
    out.loop_id = expressions_.name_id("loop");
    out.caller_id = expressions_.name_id("caller");
    out.varargs_id = expressions_.name_id("varargs");
    out.kwargs_id = expressions_.name_id("kwargs");
  }

  void run() {
    out_.body = parse_until({});
    if (!stream_.is(TokenType::kEnd)) stream_.fail_here("expected the end of the template");
  }

 private:
  // Statements up to a tag named in `ends`, whose name is the current token then.
  Body parse_until(std::initializer_list<std::string_view> ends);
  // The body of a block: the rest of its opening tag, then statements.
  Body parse_body(std::initializer_list<std::string_view> ends) {
    stream_.skip_op(":");
    stream_.expect(TokenType::kBlockEnd);
    return parse_until(ends);
  }
  // A body with its own scope, closed by `end`: unknown filters in it fail at once again.
  Body parse_scoped_body(std::string_view end) {
    const bool outer = std::exchange(expressions_.conditional, false);
    Body body = parse_body({end});
    stream_.next();
    expressions_.conditional = outer;
    return body;
  }
  const Statement* parse_statement();
  const Statement* parse_if();
  const Statement* parse_for();
  const Statement* parse_set();
  const Statement* parse_macro();
  const Statement* parse_call_block();
  const Statement* parse_filter_block();
  const Statement* parse_with();
  const Statement* parse_print();
  const Statement* parse_generation();
  const Statement* parse_loop_control();
  void parse_signature(MacroStatement& macro);
  void parse_macro_body(MacroStatement& macro, std::string_view end);
  const Target* parse_target(bool with_namespace, std::string_view stop);
  const Target* parse_single_target(bool with_namespace);

  template <class T, class... A>
  T* make(A&&... args) {
    return expressions_.make<T>(stream_.line(), std::forward<A>(args)...);
  }

  TokenStream stream_;
  Template& out_;
  ExpressionParser expressions_;
  int loop_depth_ = 0;  // loops that break and continue may mean
};

Body Parser::parse_until(std::initializer_list<std::string_view> ends) {
  const ExpressionParser::Level level(expressions_);
  Body body;
  while (true) {
    switch (stream_.current().type) {
      case TokenType::kData: {
        auto* text = make<TextStatement>();
        text->text = std::move(stream_.next().text);
        body.push_back(text);
        break;
      }
      case TokenType::kVariableBegin: {
        stream_.next();
        auto* print = make<PrintStatement>();
        print->value = expressions_.parse_tuple();
        stream_.expect(TokenType::kVariableEnd);
        body.push_back(print);
        break;
      }
      case TokenType::kBlockBegin:
        stream_.next();
        for (const std::string_view end : ends) {
          if (stream_.is_name(end)) return body;
        }
        body.push_back(parse_statement());
        stream_.expect(TokenType::kBlockEnd);
        break;
      default:
        if (ends.size() > 0) stream_.fail_here("expected '" + std::string(*(ends.end() - 1)) + "'");
        return body;
    }
  }
}

const Statement* Parser::parse_statement() {
  if (!stream_.is(TokenType::kName)) stream_.fail_here("expected the name of a tag");
  const std::string& tag = stream_.current().text;
  if (tag == "if") return parse_if();
  if (tag == "for") return parse_for();
  if (tag == "set") return parse_set();
  if (tag == "macro") return parse_macro();
  if (tag == "call") return parse_call_block();
  if (tag == "filter") return parse_filter_block();
  if (tag == "with") return parse_with();
  if (tag == "print") return parse_print();
  if (tag == "generation") return parse_generation();
  if (tag == "break" || tag == "continue") return parse_loop_control();
  fail("unknown or unsupported tag '" + tag + "'", stream_.line());
}

const Statement* Parser::parse_if() {
  const bool outer = std::exchange(expressions_.conditional, true);
  auto* node = make<IfStatement>();
  stream_.next();
  while (true) {
    const Expr* test = expressions_.parse_tuple(false);
    Body body = parse_body({"elif", "else", "endif"});
    node->branches.emplace_back(test, std::move(body));
    if (stream_.skip_name("elif")) continue;
    if (stream_.skip_name("else")) node->otherwise = parse_body({"endif"});
    stream_.expect_name("endif");
    expressions_.conditional = outer;
    return node;
  }
}

const Statement* Parser::parse_for() {
  auto* node = make<ForStatement>();
  stream_.next();
  node->target = parse_target(false, "in");
  stream_.expect_name("in");
  node->iterable = expressions_.parse_tuple(false, "recursive");
  const bool outer = std::exchange(expressions_.conditional, false);
  if (stream_.skip_name("if")) node->filter = expressions_.parse_expression();
  node->recursive = stream_.skip_name("recursive");
  ++loop_depth_;
  expressions_.loops.push_back(node);
  node->body = parse_body({"else", "endfor"});
  --loop_depth_;
  if (stream_.skip_name("else")) node->otherwise = parse_body({"endfor"});
  expressions_.loops.pop_back();
  stream_.expect_name("endfor");
  expressions_.conditional = outer;
  return node;
}

const Target* Parser::parse_single_target(bool with_namespace) {
  if (stream_.skip_op("(")) {
    const ExpressionParser::Level level(expressions_);
    const Target* target = parse_target(with_namespace, {});
    stream_.expect_op(")");
    return target;
  }
  auto* target = make<Target>();
  const std::string name = stream_.expect_identifier();
  if (is_literal_name(name)) fail("cannot assign to '" + name + "'", target->line);
  target->id = expressions_.name_id(name);
  if (with_namespace && stream_.skip_op(".")) target->attribute = stream_.expect_identifier();
  return target;
}

const Target* Parser::parse_target(bool with_namespace, std::string_view stop) {
  const Target* first = parse_single_target(with_namespace);
  if (!stream_.is_op(",")) return first;
  auto* tuple = make<Target>();
  tuple->is_tuple = true;
  tuple->items.push_back(first);
  while (stream_.skip_op(",")) {
    const bool at_end = stream_.is_op(")") || stream_.is_op("=") ||
                        stream_.is(TokenType::kBlockEnd) ||
                        (!stop.empty() && stream_.is_name(stop));
    if (at_end) break;
    tuple->items.push_back(parse_single_target(with_namespace));
  }
  return tuple;
}

const Statement* Parser::parse_set() {
  const int line = stream_.next().line;
  const Target* target = parse_target(true, {});
  if (stream_.skip_op("=")) {
    auto* node = expressions_.make<SetStatement>(line);
    node->target = target;
    node->value = expressions_.parse_tuple();
    return node;
  }
  auto* node = expressions_.make<SetBlockStatement>(line);
  node->target = target;
  if (stream_.is_op("|")) node->filter = expressions_.parse_filters(nullptr);
  node->body = parse_scoped_body("endset");
  return node;
}

void Parser::parse_signature(MacroStatement& macro) {
  stream_.expect_op("(");
  while (!stream_.is_op(")")) {
    if (!macro.parameters.empty()) stream_.expect_op(",");
    if (stream_.is_op(")")) break;
    MacroStatement::Parameter parameter;
    parameter.name = stream_.expect_identifier();
    parameter.id = expressions_.name_id(parameter.name);
    macro.has_caller_parameter |= parameter.id == out_.caller_id;
    if (stream_.skip_op("=")) {
      parameter.otherwise = expressions_.parse_expression();
    } else if (!macro.parameters.empty() && macro.parameters.back().otherwise != nullptr) {
      fail("a parameter without a default follows one with a default", stream_.line());
    }
    macro.parameters.push_back(std::move(parameter));
  }
  stream_.next();
}

// A macro's body is a function of its own: it has no part in the loops around it.
void Parser::parse_macro_body(MacroStatement& macro, std::string_view end) {
  expressions_.macros.push_back(&macro);
  const int outer = std::exchange(loop_depth_, 0);
  macro.body = parse_scoped_body(end);
  loop_depth_ = outer;
  expressions_.macros.pop_back();
}

const Statement* Parser::parse_macro() {
  auto* node = make<MacroStatement>(StatementKind::kMacro);
  stream_.next();
  node->name = stream_.expect_identifier();
  node->id = expressions_.name_id(node->name);
  parse_signature(*node);
  parse_macro_body(*node, "endmacro");
  return node;
}

const Statement* Parser::parse_call_block() {
  auto* node = make<MacroStatement>(StatementKind::kCallBlock);
  stream_.next();
  node->name = "caller";
  if (stream_.is_op("(")) parse_signature(*node);
  const Expr* call = expressions_.parse_expression();
  if (call->kind != ExprKind::kCall) fail("a call block needs a call", node->line);
  node->call = static_cast<const CallExpr*>(call);
  parse_macro_body(*node, "endcall");
  return node;
}

const Statement* Parser::parse_filter_block() {
  auto* node = make<FilterBlockStatement>();
  stream_.next();
  node->filter = expressions_.parse_filters(nullptr);
  node->body = parse_scoped_body("endfilter");
  return node;
}

const Statement* Parser::parse_with() {
  auto* node = make<WithStatement>();
  stream_.next();
  while (!stream_.is(TokenType::kBlockEnd)) {
    if (!node->values.empty()) stream_.expect_op(",");
    const Target* target = parse_single_target(false);
    stream_.expect_op("=");
    node->values.emplace_back(target, expressions_.parse_expression());
  }
  node->body = parse_scoped_body("endwith");
  return node;
}

const Statement* Parser::parse_print() {
  auto* node = make<PrintStatement>();
  stream_.next();
  node->value = expressions_.parse_tuple();
  return node;
}

const Statement* Parser::parse_generation() {
  auto* node = make<BlockStatement>(StatementKind::kGeneration);
  stream_.next();
  const int outer = std::exchange(loop_depth_, 0);
  node->body = parse_scoped_body("endgeneration");
  loop_depth_ = outer;
  return node;
}

const Statement* Parser::parse_loop_control() {
  const bool is_break = stream_.is_name("break");
  auto* node = make<BlockStatement>(is_break ? StatementKind::kBreak : StatementKind::kContinue);
  if (loop_depth_ == 0) fail("'" + stream_.current().text + "' outside a loop", node->line);
  stream_.next();
  return node;
}

}  // namespace

std::unique_ptr<Template> parse_template(std::string_view source) {
  auto result = std::make_unique<Template>();
  Parser(tokenize_template(source), *result).run();
  return result;
}

}  // namespace millrace::jinja
