#include "engine/text/split_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

#include "absl/strings/str_format.h"

namespace millrace {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
constexpr size_t kJitStackBytes = 1 << 20;
constexpr uint32_t kMatchLimit = 4'000'000;
constexpr uint32_t kHeapLimitKib = 64 << 10;

// What Oniguruma reads differently: \h is a hexadecimal digit there, classes nest and intersect.
const char* ambiguous_construct(std::string_view pattern) {
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const char next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (c == '\\') {
      if (next == 'h' || next == 'H') return "\\h";
      ++i;
    } else if (in_class) {
      if (c == '[' && next != ':') return "a nested character class";
      if (c == '&' && next == '&') return "&&";
      if (c == '[') {
        const size_t close = pattern.find(":]", i);
        if (close == std::string_view::npos) return "an open [: class";
        i = close + 1;
      } else if (c == ']') {
        in_class = false;
      }
    } else if (c == '[') {
      in_class = true;
      if (next == '^') ++i;
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') ++i;
    }
  }
  return nullptr;
}

// \w as Oniguruma has it; PCRE2's knows no marks. The body of a class.
constexpr std::string_view kWordClass = R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9})";

// Writes \w, \W, \b and \B out; empty if \W stands in a class, where it cannot be written out.
std::string with_word_class(std::string_view pattern) {
  const std::string word = "[" + std::string(kWordClass) + "]";
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '\\' || i + 1 == pattern.size()) {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      out += c;
      continue;
    }
    const char escape = pattern[++i];
    if (escape == 'w') {
      out += in_class ? std::string(kWordClass) : word;
    } else if (escape == 'W') {
      if (in_class) return {};
      out += "[^" + std::string(kWordClass) + "]";
    } else if (escape == 'b' && !in_class) {
      out += "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))";
    } else if (escape == 'B' && !in_class) {
      out += "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))";
    } else {
      out += c;
      out += escape;
    }
  }
  return out;
}

}  // namespace

struct SplitRegex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

struct SplitRegex::MatchState::Impl {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr);
  Impl() {
    if (context == nullptr) return;
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Impl() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

SplitRegex::MatchState::MatchState() : impl_(std::make_unique<Impl>()) {}
SplitRegex::MatchState::~MatchState() = default;
SplitRegex::SplitRegex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
SplitRegex::~SplitRegex() = default;

StatusOr<std::shared_ptr<const SplitRegex>> SplitRegex::compile(std::string_view pattern) {
  const std::string quoted(pattern.substr(0, 200));
  if (pattern.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the split pattern has %d bytes, at most %d are supported", pattern.size(),
                        kMaxPatternBytes));
  }
  if (const char* construct = ambiguous_construct(pattern)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the split pattern \"%s\" uses %s, which is not supported", quoted, construct));
  }
  const std::string source = with_word_class(pattern);
  if (source.empty() && !pattern.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the split pattern \"%s\" uses \\W inside a class, which is not supported", quoted));
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
      &error, &offset, nullptr);
  if (code->code == nullptr) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(error, message, sizeof(message));
    return absl::InvalidArgumentError(
        absl::StrFormat("the split pattern \"%s\" does not compile at byte %d: %s", quoted, offset,
                        reinterpret_cast<const char*>(message)));
  }
  // Without JIT on this machine the interpreter gives the same matches.
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  return std::shared_ptr<const SplitRegex>(new SplitRegex(std::move(code)));
}

SplitRule::Match SplitRegex::find(std::string_view text, size_t from, MatchState& state) const {
  MatchState::Impl& impl = *state.impl_;
  if (impl.data == nullptr || impl.context == nullptr) return {kNone, kNone};
  const int count = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                from, 0, impl.data, impl.context);
  if (count < 0) return {kNone, kNone};
  const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(impl.data);
  // \K may put the start behind the end.
  return {bounds[0], bounds[1] < bounds[0] ? bounds[0] : bounds[1]};
}

}  // namespace millrace
