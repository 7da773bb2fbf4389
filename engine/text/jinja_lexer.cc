#include "engine/text/jinja_lexer.h"

#include <algorithm>

#include "engine/text/jinja_error.h"
#include "engine/text/jinja_unicode.h"

namespace millrace::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;
constexpr std::string_view kTwoByteOperators[] = {"//", "**", "==", "!=", ">=", "<="};
constexpr std::string_view kOneByteOperators = "+-/*%~[](){}><=.:|,;";

std::string normalize_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text.push_back(source[i]);
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_byte(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)), text_(source_) {}

  std::vector<TemplateToken> run() {
    while (pos_ < text_.size()) lex_root();
    emit(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void lex_root();
  void lex_comment();
  void lex_raw(size_t body);
  void lex_expression(bool block);
  void lex_token();
  void lex_number();
  void lex_string();
  void lex_operator();
  void append_escape(std::string& out, size_t& i);
  int32_t read_digits(size_t& i, size_t max_digits, int base, bool exact);

  void emit(TokenType type, std::string text) { tokens_.push_back({type, line_, std::move(text)}); }
  bool at(size_t i, std::string_view what) const {
    return text_.substr(std::min(i, text_.size()), what.size()) == what;
  }
  size_t skip_space(size_t i) const {
    while (i < text_.size()) {
      const CodePoint c = decode_at(text_, i);
      if (!is_space(c.value) || !c.well_formed) break;
      i += c.size;
    }
    return i;
  }
  // Moves to `end`, counting lines and noting whether the skipped text ended a line.
  void advance(size_t end) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<ptrdiff_t>(pos_),
                                         text_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    line_starting_ = end > pos_ && text_[end - 1] == '\n';
    pos_ = end;
  }
  // The end of a closing delimiter ("%}", "#}") with its sign, or kNone if there is none at `i`.
  size_t closing(size_t i, std::string_view delimiter, bool trims) const;
  void emit_data(size_t end, char sign, bool lstrip);

  std::string source_;
  std::string_view text_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<TemplateToken> tokens_;
};

size_t Lexer::closing(size_t i, std::string_view delimiter, bool trims) const {
  if (at(i, "-") && at(i + 1, delimiter)) return skip_space(i + 3);
  if (trims && at(i, "+") && at(i + 1, delimiter)) return i + 3;
  if (!at(i, delimiter)) return kNone;
  return trims && at(i + 2, "\n") ? i + 3 : i + 2;
}

// Emits text_[pos_, end) as data after the whitespace rules of the tag that follows it.
void Lexer::emit_data(size_t end, char sign, bool lstrip) {
  std::string_view data = text_.substr(pos_, end - pos_);
  if (sign == '-') {
    size_t keep = 0;
    for (size_t i = 0; i < data.size();) {
      const CodePoint c = decode_at(data, i);
      i += c.size;
      if (!is_space(c.value) || !c.well_formed) keep = i;
    }
    data = data.substr(0, keep);
  } else if (sign != '+' && lstrip) {
    const size_t newline = data.rfind('\n');
    const size_t line_begin = newline == kNone ? 0 : newline + 1;
    if ((line_begin > 0 || line_starting_) && skip_space(pos_ + line_begin) >= end) {
      data = data.substr(0, line_begin);
    }
  }
  if (!data.empty()) emit(TokenType::kData, std::string(data));
  advance(end);
}

void Lexer::lex_root() {
  size_t open = pos_;
  for (;; ++open) {
    open = text_.find('{', open);
    if (open == kNone || open + 1 >= text_.size()) {
      emit(TokenType::kData, std::string(text_.substr(pos_)));
      advance(text_.size());
      return;
    }
    const char c = text_[open + 1];
    if (c == '{' || c == '%' || c == '#') break;
  }
  const char kind = text_[open + 1];
  const char sign = open + 2 < text_.size() ? text_[open + 2] : ' ';
  emit_data(open, sign, kind != '{');
  const size_t body = open + (sign == '-' || sign == '+' ? 3 : 2);
  if (kind == '#') {
    advance(body);
    lex_comment();
    return;
  }
  if (kind == '%') {
    const size_t word = skip_space(body);
    if (at(word, "raw")) {
      const size_t close = skip_space(word + 3);
      if (at(close, "%}")) return lex_raw(close + 2);
      if (at(close, "-%}")) return lex_raw(skip_space(close + 3));
    }
  }
  emit(kind == '%' ? TokenType::kBlockBegin : TokenType::kVariableBegin, "");
  advance(body);
  lex_expression(kind == '%');
}

void Lexer::lex_comment() {
  for (size_t i = pos_; i < text_.size(); ++i) {
    const size_t end = closing(i, "#}", true);
    if (end == kNone) continue;
    advance(end);
    return;
  }
  fail("missing end of comment tag", line_);
}

void Lexer::lex_raw(size_t body) {
  advance(body);
  for (size_t i = text_.find("{%", pos_); i != kNone; i = text_.find("{%", i + 1)) {
    const char sign = i + 2 < text_.size() ? text_[i + 2] : ' ';
    const size_t word = skip_space(i + (sign == '-' || sign == '+' ? 3 : 2));
    if (!at(word, "endraw")) continue;
    const size_t end = closing(skip_space(word + 6), "%}", true);
    if (end == kNone) continue;
    emit_data(i, sign, true);
    advance(end);
    return;
  }
  fail("missing end of raw block", line_);
}

void Lexer::lex_expression(bool block) {
  const std::string_view delimiter = block ? "%}" : "}}";
  std::string open;  // brackets that wait for their partner
  while (true) {
    const size_t token = skip_space(pos_);
    advance(token);
    if (pos_ >= text_.size()) fail("a tag is not closed at the end of the template", line_);
    if (open.empty()) {
      const size_t end = closing(pos_, delimiter, block);
      if (end != kNone) {
        emit(block ? TokenType::kBlockEnd : TokenType::kVariableEnd, "");
        advance(end);
        return;
      }
    }
    const char c = text_[pos_];
    if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) fail("unexpected '" + std::string(1, c) + "'", line_);
      open.pop_back();
    }
    lex_token();
  }
}

void Lexer::lex_token() {
  const char c = text_[pos_];
  if (is_digit(c)) return lex_number();
  if (c == '\'' || c == '"') return lex_string();
  if (!is_name_byte(c)) return lex_operator();
  size_t end = pos_;
  while (end < text_.size() && is_name_byte(text_[end])) ++end;
  emit(TokenType::kName, std::string(text_.substr(pos_, end - pos_)));
  advance(end);
}

void Lexer::lex_operator() {
  for (const std::string_view op : kTwoByteOperators) {
    if (!at(pos_, op)) continue;
    emit(TokenType::kOperator, std::string(op));
    return advance(pos_ + 2);
  }
  if (kOneByteOperators.find(text_[pos_]) == kNone) {
    fail("unexpected character '" + std::string(1, text_[pos_]) + "' in a tag", line_);
  }
  emit(TokenType::kOperator, std::string(1, text_[pos_]));
  advance(pos_ + 1);
}

void Lexer::lex_number() {
  size_t i = pos_;
  const auto digits = [&](auto accept) {
    while (i < text_.size() && (accept(text_[i]) || (text_[i] == '_' && i + 1 < text_.size() &&
                                                     accept(text_[i + 1])))) {
      ++i;
    }
  };
  bool is_float = false;
  const char prefix =
      at(pos_, "0") && i + 1 < text_.size() ? static_cast<char>(text_[i + 1] | 0x20) : ' ';
  if (prefix == 'x' || prefix == 'o' || prefix == 'b') {
    i += 2;
    digits([prefix](char c) {
      if (prefix == 'b') return c == '0' || c == '1';
      if (prefix == 'o') return c >= '0' && c <= '7';
      return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
    });
  } else {
    digits(is_digit);
    // After a dot ("a.0.1") the digits are an index, not the start of a fraction.
    const bool after_dot = pos_ > 0 && text_[pos_ - 1] == '.';
    if (!after_dot && at(i, ".") && i + 1 < text_.size() && is_digit(text_[i + 1])) {
      is_float = true;
      ++i;
      digits(is_digit);
    }
    if (!after_dot && i < text_.size() && (text_[i] | 0x20) == 'e') {
      const size_t exponent = i + (at(i + 1, "+") || at(i + 1, "-") ? 2 : 1);
      if (exponent < text_.size() && is_digit(text_[exponent])) {
        is_float = true;
        i = exponent;
        digits(is_digit);
      }
    }
  }
  std::string number(text_.substr(pos_, i - pos_));
  std::erase(number, '_');
  emit(is_float ? TokenType::kFloat : TokenType::kInteger, std::move(number));
  advance(i);
}

int32_t Lexer::read_digits(size_t& i, size_t max_digits, int base, bool exact) {
  int32_t value = 0;
  size_t count = 0;
  for (; count < max_digits && i < text_.size(); ++count, ++i) {
    const char c = text_[i];
    const char lower = static_cast<char>(c | 0x20);
    int digit = 99;
    if (is_digit(c)) digit = c - '0';
    if (lower >= 'a' && lower <= 'f') digit = lower - 'a' + 10;
    if (digit >= base) break;
    value = value * base + digit;
    if (value > 0x10FFFF) fail("a character escape is above U+10FFFF", line_);
  }
  if (exact && count != max_digits) fail("a character escape has too few digits", line_);
  if (value >= 0xD800 && value <= 0xDFFF) fail("a character escape names a surrogate", line_);
  return value;
}

// `i` is the position after the backslash; Python's unicode-escape rules.
void Lexer::append_escape(std::string& out, size_t& i) {
  const char c = text_[i++];
  switch (c) {
    case '\n': return;
    case '\\':
    case '\'':
    case '"': out.push_back(c); return;
    case 'a': out.push_back('\a'); return;
    case 'b': out.push_back('\b'); return;
    case 'f': out.push_back('\f'); return;
    case 'n': out.push_back('\n'); return;
    case 'r': out.push_back('\r'); return;
    case 't': out.push_back('\t'); return;
    case 'v': out.push_back('\v'); return;
    case 'x': append_code_point(out, read_digits(i, 2, 16, true)); return;
    case 'u': append_code_point(out, read_digits(i, 4, 16, true)); return;
    case 'U': append_code_point(out, read_digits(i, 8, 16, true)); return;
    case 'N': fail("character names (\\N) in strings are not supported", line_);
    default: break;
  }
  if (c >= '0' && c <= '7') {
    --i;
    append_code_point(out, read_digits(i, 3, 8, false));
    return;
  }
  out.push_back('\\');
  out.push_back(c);
}

void Lexer::lex_string() {
  const char quote = text_[pos_];
  std::string value;
  size_t i = pos_ + 1;
  while (true) {
    if (i >= text_.size()) fail("a string is not closed", line_);
    const char c = text_[i++];
    if (c == quote) break;
    if (c != '\\') {
      value.push_back(c);
    } else {
      if (i >= text_.size()) fail("a string is not closed", line_);
      append_escape(value, i);
    }
  }
  emit(TokenType::kString, std::move(value));
  advance(i);
}

}  // namespace

std::vector<TemplateToken> tokenize_template(std::string_view source) {
  return Lexer(source).run();
}

std::string describe(const TemplateToken& token) {
  switch (token.type) {
    case TokenType::kData: return "template text";
    case TokenType::kVariableBegin: return "'{{'";
    case TokenType::kVariableEnd: return "'}}'";
    case TokenType::kBlockBegin: return "'{%'";
    case TokenType::kBlockEnd: return "'%}'";
    case TokenType::kEnd: return "the end of the template";
    case TokenType::kString: return "a string";
    default: return "'" + token.text + "'";
  }
}

}  // namespace millrace::jinja
