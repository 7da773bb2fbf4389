// The tree of a compiled template. A Template owns every node; nodes point at each other freely.
// Immutable after parsing, so any number of threads may render it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/text/jinja_methods.h"
#include "engine/text/jinja_ops.h"
#include "engine/text/jinja_value.h"

namespace millrace::jinja {

struct Node {
  virtual ~Node() = default;
  int line = 0;
};

enum class ExprKind : uint8_t {
  kConst,
  kName,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kNot,
  kNegate,
  kPlus,
  kBinary,
  kConcat,
  kCompare,
  kAnd,
  kOr,
  kConditional,
  kSequence,
  kDict,
};

struct Expr : Node {
  explicit Expr(ExprKind k) : kind(k) {}
  ExprKind kind;
  int height = 1;  // of the tree below, bounded by the parser
};

struct ConstExpr : Expr {
  ConstExpr() : Expr(ExprKind::kConst) {}
  Value value;
};

struct NameExpr : Expr {
  NameExpr() : Expr(ExprKind::kName) {}
  uint32_t id = 0;  // index into Template::names
};

struct AttributeExpr : Expr {
  AttributeExpr() : Expr(ExprKind::kAttribute) {}
  const Expr* object = nullptr;
  std::string name;
  MethodSet methods;  // of this name, for each type that has one
};

struct ItemExpr : Expr {
  ItemExpr() : Expr(ExprKind::kItem) {}
  const Expr* object = nullptr;
  const Expr* key = nullptr;
  std::string name;  // of a constant string key, for error messages
};

struct SliceExpr : Expr {
  SliceExpr() : Expr(ExprKind::kSlice) {}
  const Expr* object = nullptr;
  const Expr* start = nullptr;  // null where left out
  const Expr* stop = nullptr;
  const Expr* step = nullptr;
};

struct CallArguments {
  std::vector<const Expr*> positional;
  std::vector<std::pair<std::string, const Expr*>> named;
  const Expr* star = nullptr;         // *args
  const Expr* double_star = nullptr;  // **kwargs
};

struct CallExpr : Expr {
  CallExpr() : Expr(ExprKind::kCall) {}
  const Expr* callee = nullptr;
  CallArguments arguments;
};

// A filter or a test. `function` is null for an unknown name inside a conditional part, which
// fails only when it is reached.
struct FilterExpr : Expr {
  explicit FilterExpr(ExprKind k) : Expr(k) {}
  const Expr* subject = nullptr;  // null in a filter block
  std::string name;
  Method function = nullptr;
  CallArguments arguments;
};

struct UnaryExpr : Expr {
  explicit UnaryExpr(ExprKind k) : Expr(k) {}
  const Expr* operand = nullptr;
};

struct BinaryExpr : Expr {  // also and, or
  explicit BinaryExpr(ExprKind k) : Expr(k) {}
  BinaryOp op = BinaryOp::kAdd;
  const Expr* left = nullptr;
  const Expr* right = nullptr;
};

struct SequenceExpr : Expr {  // list, tuple, or the operands of ~
  explicit SequenceExpr(ExprKind k) : Expr(k) {}
  bool is_tuple = false;
  std::vector<const Expr*> items;
};

struct CompareExpr : Expr {
  CompareExpr() : Expr(ExprKind::kCompare) {}
  const Expr* first = nullptr;
  std::vector<std::pair<CompareOp, const Expr*>> rest;
};

struct ConditionalExpr : Expr {
  ConditionalExpr() : Expr(ExprKind::kConditional) {}
  const Expr* test = nullptr;
  const Expr* yes = nullptr;
  const Expr* no = nullptr;  // null: undefined
};

struct DictExpr : Expr {
  DictExpr() : Expr(ExprKind::kDict) {}
  std::vector<std::pair<const Expr*, const Expr*>> items;
};

enum class StatementKind : uint8_t {
  kText,
  kPrint,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kGeneration,
  kBreak,
  kContinue,
};

struct Statement : Node {
  explicit Statement(StatementKind k) : kind(k) {}
  StatementKind kind;
};

using Body = std::vector<const Statement*>;

// What an assignment writes to: a name, namespace.attribute, or a tuple of targets.
struct Target : Node {
  uint32_t id = 0;
  std::string attribute;  // empty: a plain name
  bool is_tuple = false;
  std::vector<const Target*> items;
};

struct TextStatement : Statement {
  TextStatement() : Statement(StatementKind::kText) {}
  std::string text;
};

struct PrintStatement : Statement {
  PrintStatement() : Statement(StatementKind::kPrint) {}
  const Expr* value = nullptr;
};

struct IfStatement : Statement {
  IfStatement() : Statement(StatementKind::kIf) {}
  std::vector<std::pair<const Expr*, Body>> branches;  // if, elif ...
  Body otherwise;
};

struct ForStatement : Statement {
  ForStatement() : Statement(StatementKind::kFor) {}
  const Target* target = nullptr;
  const Expr* iterable = nullptr;
  const Expr* filter = nullptr;
  bool recursive = false;
  bool uses_loop = false;  // the name `loop` occurs inside
  Body body;
  Body otherwise;
};

struct SetStatement : Statement {
  SetStatement() : Statement(StatementKind::kSet) {}
  const Target* target = nullptr;
  const Expr* value = nullptr;
};

struct SetBlockStatement : Statement {
  SetBlockStatement() : Statement(StatementKind::kSetBlock) {}
  const Target* target = nullptr;
  const Expr* filter = nullptr;  // chain whose innermost subject is null
  Body body;
};

struct MacroStatement : Statement {
  explicit MacroStatement(StatementKind k) : Statement(k) {}
  std::string name;
  uint32_t id = 0;
  struct Parameter {
    std::string name;
    uint32_t id = 0;
    const Expr* otherwise = nullptr;
  };
  std::vector<Parameter> parameters;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
  bool has_caller_parameter = false;
  const CallExpr* call = nullptr;  // call block only: what the block is passed to
  Body body;
};

struct FilterBlockStatement : Statement {
  FilterBlockStatement() : Statement(StatementKind::kFilterBlock) {}
  const Expr* filter = nullptr;
  Body body;
};

struct WithStatement : Statement {
  WithStatement() : Statement(StatementKind::kWith) {}
  std::vector<std::pair<const Target*, const Expr*>> values;
  Body body;
};

struct BlockStatement : Statement {  // generation, break, continue
  explicit BlockStatement(StatementKind k) : Statement(k) {}
  Body body;
};

struct Template {
  std::vector<std::unique_ptr<StringObject>> literals;  // before `nodes`, which point at them
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<std::string> names;
  std::unordered_map<std::string, uint32_t> name_ids;
  uint32_t loop_id = 0, caller_id = 0, varargs_id = 0, kwargs_id = 0;
  Body body;
};

}  // namespace millrace::jinja
