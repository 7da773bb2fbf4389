// Splits a template's text into tokens, with the whitespace rules of trim_blocks and lstrip_blocks.
// Pure function; the first stage of compiling.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace::jinja {

enum class TokenType {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kInteger,
  kFloat,
  kString,
  kOperator,
  kEnd,
};

struct TemplateToken {
  TokenType type = TokenType::kEnd;
  int line = 1;
  std::string text;  // string literals are unescaped, numbers have no underscores
};

// Newlines become "\n" and one at the very end is dropped. Throws Failure.
std::vector<TemplateToken> tokenize_template(std::string_view source);

// A token as an error message shows it.
std::string describe(const TemplateToken& token);

}  // namespace millrace::jinja
