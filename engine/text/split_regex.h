// SplitRegex: a split pattern for which there is no hand-written scanner, compiled by PCRE2 with
// Unicode properties. Immutable after compile; find() may run on any number of threads, each with
// its own MatchState.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/status.h"
#include "engine/text/split_rule.h"

namespace millrace {

class SplitRegex {
 public:
  // INVALID_ARGUMENT quotes the pattern and says why: PCRE2 cannot compile it, or it uses a
  // construct to which Oniguruma (the reference) gives another meaning.
  static StatusOr<std::shared_ptr<const SplitRegex>> compile(std::string_view pattern);
  ~SplitRegex();

  class MatchState {
   public:
    MatchState();
    ~MatchState();
    MatchState(const MatchState&) = delete;
    MatchState& operator=(const MatchState&) = delete;

   private:
    friend class SplitRegex;
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

  // First match at or after `from`, possibly empty; {npos, npos} if there is none, or if the search
  // would cost more than its limits allow (the rest of the text then stays one piece).
  SplitRule::Match find(std::string_view text, size_t from, MatchState& state) const;
  static constexpr size_t kNone = static_cast<size_t>(-1);

 private:
  struct Code;
  explicit SplitRegex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace millrace
