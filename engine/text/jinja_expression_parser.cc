#include "engine/text/jinja_expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "engine/text/jinja_builtins.h"

namespace millrace::jinja {
namespace {

// Nesting of brackets and blocks in the source, and the height of an expression's tree (a chain of
// operators is as high as it is long). Both bound recursion.
constexpr int kMaxDepth = 100;
constexpr int kMaxHeight = 300;

}  // namespace

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
  if (parser.depth_ >= kMaxDepth) {
    fail("expressions and blocks are nested deeper than 100 levels", parser.stream_.line());
  }
  ++parser.depth_;
}

void ExpressionParser::raise(Expr* node, const Expr* child) {
  node->height = std::max(node->height, child->height + 1);
  if (node->height > kMaxHeight) fail("an expression has more than 300 levels", node->line);
}

void ExpressionParser::raise(Expr* node, const CallArguments& arguments) {
  for (const Expr* child : arguments.positional) raise(node, child);
  for (const auto& [name, child] : arguments.named) raise(node, child);
  if (arguments.star != nullptr) raise(node, arguments.star);
  if (arguments.double_star != nullptr) raise(node, arguments.double_star);
}

uint32_t ExpressionParser::name_id(const std::string& name) {
  const auto [it, added] =
      out_.name_ids.try_emplace(name, static_cast<uint32_t>(out_.names.size()));
  if (added) out_.names.push_back(name);
  return it->second;
}

Value ExpressionParser::literal(std::string text) {
  out_.literals.push_back(std::make_unique<StringObject>(std::move(text)));
  StringObject* string = out_.literals.back().get();
  string->length();  // computed now: a literal is read by several threads later
  return Value::object(Kind::kString, string);
}

const Expr* ExpressionParser::constant(Value value, int line) {
  auto* node = make<ConstExpr>(line);
  node->value = std::move(value);
  return node;
}

const Expr* ExpressionParser::parse_expression(bool with_conditional) {
  const Level level(*this);
  return with_conditional ? parse_conditional() : parse_or();
}

const Expr* ExpressionParser::parse_conditional() {
  const int line = stream_.line();
  const bool outer = conditional;
  const Expr* expr = parse_or();
  while (stream_.skip_name("if")) {
    conditional = true;
    auto* node = make<ConditionalExpr>(line);
    node->yes = expr;
    node->test = parse_or();
    if (stream_.skip_name("else")) node->no = parse_expression();
    expr = finish(node, {node->test, node->yes, node->no});
    conditional = outer;
  }
  return expr;
}

const Expr* ExpressionParser::parse_or() {
  const Expr* left = parse_and();
  while (stream_.is_name("or")) {
    auto* node = make<BinaryExpr>(stream_.next().line, ExprKind::kOr);
    node->left = left;
    node->right = parse_and();
    left = finish(node, {node->left, node->right});
  }
  return left;
}

const Expr* ExpressionParser::parse_and() {
  const Expr* left = parse_not();
  while (stream_.is_name("and")) {
    auto* node = make<BinaryExpr>(stream_.next().line, ExprKind::kAnd);
    node->left = left;
    node->right = parse_not();
    left = finish(node, {node->left, node->right});
  }
  return left;
}

const Expr* ExpressionParser::parse_not() {
  if (!stream_.is_name("not")) return parse_compare();
  const Level level(*this);
  auto* node = make<UnaryExpr>(stream_.next().line, ExprKind::kNot);
  node->operand = parse_not();
  return finish(node, {node->operand});
}

const Expr* ExpressionParser::parse_compare() {
  static constexpr std::pair<std::string_view, CompareOp> kOperators[] = {
      {"==", CompareOp::kEq}, {"!=", CompareOp::kNe}, {"<", CompareOp::kLt},
      {"<=", CompareOp::kLe}, {">", CompareOp::kGt},  {">=", CompareOp::kGe},
  };
  const int line = stream_.line();
  const Expr* first = parse_sum();
  CompareExpr* node = nullptr;
  while (true) {
    const auto* op = std::find_if(std::begin(kOperators), std::end(kOperators),
                                  [&](const auto& o) { return stream_.is_op(o.first); });
    CompareOp kind;
    if (op != std::end(kOperators)) {
      kind = op->second;
      stream_.next();
    } else if (stream_.skip_name("in")) {
      kind = CompareOp::kIn;
    } else if (stream_.is_name("not") && stream_.after().type == TokenType::kName &&
               stream_.after().text == "in") {
      kind = CompareOp::kNotIn;
      stream_.next();
      stream_.next();
    } else {
      return node == nullptr ? first : node;
    }
    if (node == nullptr) {
      node = make<CompareExpr>(line);
      node->first = first;
      raise(node, first);
    }
    node->rest.emplace_back(kind, parse_sum());
    raise(node, node->rest.back().second);
  }
}

const Expr* ExpressionParser::parse_sum() {
  const Expr* left = parse_concat();
  while (stream_.is_op("+") || stream_.is_op("-")) {
    auto* node = make<BinaryExpr>(stream_.line(), ExprKind::kBinary);
    node->op = stream_.next().text == "+" ? BinaryOp::kAdd : BinaryOp::kSub;
    node->left = left;
    node->right = parse_concat();
    left = finish(node, {node->left, node->right});
  }
  return left;
}

const Expr* ExpressionParser::parse_concat() {
  const int line = stream_.line();
  const Expr* first = parse_product();
  if (!stream_.is_op("~")) return first;
  auto* node = make<SequenceExpr>(line, ExprKind::kConcat);
  node->items.push_back(first);
  while (stream_.skip_op("~")) node->items.push_back(parse_product());
  for (const Expr* item : node->items) raise(node, item);
  return node;
}

const Expr* ExpressionParser::parse_product() {
  static constexpr std::pair<std::string_view, BinaryOp> kOperators[] = {
      {"*", BinaryOp::kMul},
      {"/", BinaryOp::kDiv},
      {"//", BinaryOp::kFloorDiv},
      {"%", BinaryOp::kMod}};
  const Expr* left = parse_power();
  while (true) {
    const auto* op = std::find_if(std::begin(kOperators), std::end(kOperators),
                                  [&](const auto& o) { return stream_.is_op(o.first); });
    if (op == std::end(kOperators)) return left;
    auto* node = make<BinaryExpr>(stream_.next().line, ExprKind::kBinary);
    node->op = op->second;
    node->left = left;
    node->right = parse_power();
    left = finish(node, {node->left, node->right});
  }
}

const Expr* ExpressionParser::parse_power() {
  const Expr* left = parse_unary();
  while (stream_.is_op("**")) {
    auto* node = make<BinaryExpr>(stream_.next().line, ExprKind::kBinary);
    node->op = BinaryOp::kPow;
    node->left = left;
    node->right = parse_unary();
    left = finish(node, {node->left, node->right});
  }
  return left;
}

const Expr* ExpressionParser::parse_unary(bool with_filters) {
  const Level level(*this);
  const Expr* expr;
  if (stream_.is_op("-") || stream_.is_op("+")) {
    const TemplateToken& sign = stream_.next();
    auto* node = make<UnaryExpr>(sign.line, sign.text == "-" ? ExprKind::kNegate : ExprKind::kPlus);
    node->operand = parse_unary(false);
    expr = finish(node, {node->operand});
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(expr);
  return with_filters ? parse_filter_expr(expr) : expr;
}

const Expr* ExpressionParser::parse_primary() {
  switch (stream_.current().type) {
    case TokenType::kName: return parse_name();
    case TokenType::kString: return parse_string();
    case TokenType::kInteger:
    case TokenType::kFloat: return parse_number();
    default: break;
  }
  if (stream_.is_op("[")) return parse_list();
  if (stream_.is_op("{")) return parse_dict();
  if (!stream_.is_op("(")) stream_.fail_here("expected an expression");
  stream_.next();
  const Expr* expr = parse_tuple(true, {}, true);
  stream_.expect_op(")");
  return expr;
}

const Expr* ExpressionParser::parse_name() {
  const TemplateToken& token = stream_.next();
  if (token.text == "true" || token.text == "True")
    return constant(Value::boolean(true), token.line);
  if (token.text == "false" || token.text == "False")
    return constant(Value::boolean(false), token.line);
  if (token.text == "none" || token.text == "None") return constant(Value(), token.line);
  auto* node = make<NameExpr>(token.line);
  node->id = name_id(token.text);
  if (node->id == out_.loop_id) {
    for (ForStatement* loop : loops) loop->uses_loop = true;
  }
  for (MacroStatement* macro : macros) {
    macro->uses_varargs |= node->id == out_.varargs_id;
    macro->uses_kwargs |= node->id == out_.kwargs_id;
    macro->uses_caller |= node->id == out_.caller_id;
  }
  return node;
}

const Expr* ExpressionParser::parse_string() {
  const int line = stream_.line();
  std::string text;
  while (stream_.is(TokenType::kString)) text += stream_.next().text;
  return constant(literal(std::move(text)), line);
}

const Expr* ExpressionParser::parse_number() {
  const TemplateToken& token = stream_.next();
  if (token.type == TokenType::kFloat) {
    return constant(Value::real(std::strtod(token.text.c_str(), nullptr)), token.line);
  }
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 1 && digits[0] == '0' && (digits[1] | 0x20) > '9') {
    const char kind = static_cast<char>(digits[1] | 0x20);
    base = kind == 'x' ? 16 : kind == 'o' ? 8 : 2;
    digits.remove_prefix(2);
  }
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    fail("the integer '" + token.text + "' is malformed or does not fit into 64 bits", token.line);
  }
  return constant(Value::integer(value), token.line);
}

const Expr* ExpressionParser::parse_tuple(bool with_conditional, std::string_view stop,
                                          bool in_parentheses) {
  const int line = stream_.line();
  const auto at_end = [&] {
    return stream_.is(TokenType::kVariableEnd) || stream_.is(TokenType::kBlockEnd) ||
           stream_.is_op(")") || (!stop.empty() && stream_.is_name(stop));
  };
  std::vector<const Expr*> items;
  bool is_tuple = false;
  while (!at_end()) {
    items.push_back(parse_expression(with_conditional));
    if (!stream_.skip_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return items[0];
  if (!is_tuple && !in_parentheses) stream_.fail_here("expected an expression");
  auto* node = make<SequenceExpr>(line, ExprKind::kSequence);
  node->is_tuple = true;
  for (const Expr* item : items) raise(node, item);
  node->items = std::move(items);
  return node;
}

const Expr* ExpressionParser::parse_list() {
  auto* node = make<SequenceExpr>(stream_.next().line, ExprKind::kSequence);
  while (!stream_.is_op("]")) {
    if (!node->items.empty()) stream_.expect_op(",");
    if (stream_.is_op("]")) break;
    node->items.push_back(parse_expression());
    raise(node, node->items.back());
  }
  stream_.next();
  return node;
}

const Expr* ExpressionParser::parse_dict() {
  auto* node = make<DictExpr>(stream_.next().line);
  while (!stream_.is_op("}")) {
    if (!node->items.empty()) stream_.expect_op(",");
    if (stream_.is_op("}")) break;
    const Expr* key = parse_expression();
    stream_.expect_op(":");
    const Expr* value = parse_expression();
    node->items.emplace_back(key, value);
    raise(node, key);
    raise(node, value);
  }
  stream_.next();
  return node;
}

const Expr* ExpressionParser::parse_postfix(const Expr* expr) {
  while (true) {
    if (stream_.is_op(".") || stream_.is_op("[")) {
      expr = parse_subscript(expr);
    } else if (stream_.is_op("(")) {
      auto* node = make<CallExpr>(stream_.line());
      node->callee = expr;
      parse_arguments(node->arguments);
      raise(node, expr);
      raise(node, node->arguments);
      expr = node;
    } else {
      return expr;
    }
  }
}

const Expr* ExpressionParser::parse_subscript(const Expr* object) {
  if (stream_.is_op("[")) return parse_bracket(object);
  const int line = stream_.next().line;
  if (stream_.is(TokenType::kInteger)) {
    auto* node = make<ItemExpr>(line);
    node->object = object;
    node->key = parse_number();
    return finish(node, {object});
  }
  auto* node = make<AttributeExpr>(line);
  node->object = object;
  node->name = stream_.expect_identifier();
  node->methods = find_methods(node->name);
  return finish(node, {object});
}

const Expr* ExpressionParser::parse_bracket(const Expr* object) {
  const int line = stream_.next().line;
  const Expr* node = parse_slice_or_key(object, line);
  if (stream_.is_op(",")) {
    // a[1, 2] subscribes with a tuple.
    if (node->kind != ExprKind::kItem) fail("slices in a tuple subscript are not supported", line);
    auto* tuple = make<SequenceExpr>(line, ExprKind::kSequence);
    tuple->is_tuple = true;
    tuple->items.push_back(static_cast<const ItemExpr*>(node)->key);
    while (stream_.skip_op(",")) tuple->items.push_back(parse_expression());
    for (const Expr* item : tuple->items) raise(tuple, item);
    auto* item = make<ItemExpr>(line);
    item->object = object;
    item->key = tuple;
    node = finish(item, {object, tuple});
  }
  stream_.expect_op("]");
  return node;
}

const Expr* ExpressionParser::parse_slice_or_key(const Expr* object, int line) {
  const Expr* start = stream_.is_op(":") ? nullptr : parse_expression();
  if (!stream_.skip_op(":")) {
    auto* node = make<ItemExpr>(line);
    node->object = object;
    node->key = start;
    if (start->kind == ExprKind::kConst) {
      const Value& key = static_cast<const ConstExpr*>(start)->value;
      if (key.is_string()) node->name = std::string(key.as_string().bytes);
    }
    return finish(node, {object, start});
  }
  auto* node = make<SliceExpr>(line);
  node->object = object;
  node->start = start;
  if (!stream_.is_op(":") && !stream_.is_op("]") && !stream_.is_op(","))
    node->stop = parse_expression();
  if (stream_.skip_op(":") && !stream_.is_op("]") && !stream_.is_op(","))
    node->step = parse_expression();
  return finish(node, {object, node->start, node->stop, node->step});
}

const Expr* ExpressionParser::parse_filter_expr(const Expr* expr) {
  while (true) {
    if (stream_.is_op("|")) {
      expr = parse_filters(expr);
    } else if (stream_.is_name("is")) {
      expr = parse_test(expr);
    } else if (stream_.is_op("(")) {
      expr = parse_postfix(expr);
    } else {
      return expr;
    }
  }
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = stream_.expect_identifier();
  while (stream_.skip_op(".")) name += "." + stream_.expect_identifier();
  return name;
}

const Expr* ExpressionParser::parse_filters(const Expr* subject) {
  // A filter block starts with the name itself, every other filter with a bar.
  bool bare = subject == nullptr && !stream_.is_op("|");
  while (bare || stream_.is_op("|")) {
    if (!bare) stream_.next();
    bare = false;
    auto* node = make<FilterExpr>(stream_.line(), ExprKind::kFilter);
    node->subject = subject;
    node->name = parse_dotted_name();
    node->function = find_filter(node->name);
    if (node->function == nullptr && !conditional) {
      fail("there is no filter named '" + node->name + "'", node->line);
    }
    if (stream_.is_op("(")) parse_arguments(node->arguments);
    if (subject != nullptr) raise(node, subject);
    raise(node, node->arguments);
    subject = node;
  }
  return subject;
}

const Expr* ExpressionParser::parse_test(const Expr* subject) {
  const int line = stream_.next().line;
  const bool negated = stream_.skip_name("not");
  auto* node = make<FilterExpr>(line, ExprKind::kTest);
  node->subject = subject;
  node->name = parse_dotted_name();
  node->function = find_test(node->name);
  if (node->function == nullptr && !conditional) {
    fail("there is no test named '" + node->name + "'", line);
  }
  if (stream_.is_op("(")) {
    parse_arguments(node->arguments);
  } else {
    const TokenType type = stream_.current().type;
    const bool starts_argument = type == TokenType::kString || type == TokenType::kInteger ||
                                 type == TokenType::kFloat || stream_.is_op("[") ||
                                 stream_.is_op("{") ||
                                 (type == TokenType::kName && !stream_.is_name("else") &&
                                  !stream_.is_name("or") && !stream_.is_name("and"));
    if (starts_argument) {
      if (stream_.is_name("is")) fail("tests cannot be chained with 'is'", line);
      node->arguments.positional.push_back(parse_postfix(parse_primary()));
    }
  }
  raise(node, subject);
  raise(node, node->arguments);
  if (!negated) return node;
  auto* inverse = make<UnaryExpr>(line, ExprKind::kNot);
  inverse->operand = node;
  return finish(inverse, {node});
}

void ExpressionParser::parse_arguments(CallArguments& arguments) {
  const int line = stream_.line();
  stream_.expect_op("(");
  const auto require = [line](bool good) {
    if (!good) fail("the arguments of a call are in the wrong order", line);
  };
  bool first = true;
  while (!stream_.is_op(")")) {
    if (!first) stream_.expect_op(",");
    first = false;
    if (stream_.is_op(")")) break;
    if (stream_.skip_op("*")) {
      require(arguments.star == nullptr && arguments.double_star == nullptr);
      arguments.star = parse_expression();
    } else if (stream_.skip_op("**")) {
      require(arguments.double_star == nullptr);
      arguments.double_star = parse_expression();
    } else if (stream_.is(TokenType::kName) && stream_.after().type == TokenType::kOperator &&
               stream_.after().text == "=") {
      require(arguments.double_star == nullptr);
      std::string name = stream_.next().text;
      stream_.next();
      for (const auto& other : arguments.named) {
        if (other.first == name) fail("the argument '" + name + "' is given twice", line);
      }
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else {
      require(arguments.star == nullptr && arguments.double_star == nullptr &&
              arguments.named.empty());
      arguments.positional.push_back(parse_expression());
    }
  }
  stream_.next();
}

}  // namespace millrace::jinja
