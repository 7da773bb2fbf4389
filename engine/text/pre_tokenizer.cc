#include "engine/text/pre_tokenizer.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "engine/text/unicode.h"

namespace millrace {
namespace {

constexpr size_t kNone = SplitRegex::kNone;

SplitRule::Match find_match(const SplitStage& stage, std::string_view text, size_t from,
                            SplitRegex::MatchState& state) {
  if (const auto* rule = std::get_if<SplitRule>(&stage.matcher)) {
    const SplitRule::Match match = rule->find(text, from);
    return match.begin == text.size() ? SplitRule::Match{kNone, kNone} : match;
  }
  if (const auto* regex = std::get_if<std::shared_ptr<const SplitRegex>>(&stage.matcher)) {
    return (*regex)->find(text, from, state);
  }
  const std::string& literal = std::get<std::string>(stage.matcher);
  const size_t begin = literal.empty() ? kNone : text.find(literal, from);
  return begin == kNone ? SplitRule::Match{kNone, kNone}
                        : SplitRule::Match{begin, begin + literal.size()};
}

// Calls piece(begin, end, is_match) for every match and every gap, empty ones left out.
template <typename Callback>
void for_each_piece(const SplitStage& stage, std::string_view text, SplitRegex::MatchState& state,
                    Callback piece) {
  size_t done = 0;
  size_t from = 0;
  while (from < text.size()) {
    const SplitRule::Match match = find_match(stage, text, from, state);
    if (match.begin == kNone) break;
    if (match.begin > done) piece(done, match.begin, false);
    if (match.end > match.begin) piece(match.begin, match.end, true);
    done = from = match.end;
    // An empty match splits, but the search goes on behind the next character.
    if (match.end == match.begin && from < text.size()) {
      from += decode_utf8(text.data() + from, text.data() + text.size()).length;
    }
  }
  if (done < text.size()) piece(done, text.size(), false);
}

}  // namespace

Status PreTokenizer::add(SplitStage stage) {
  if (stages_.size() == kMaxStages) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the pre-tokenizer has more than %d stages", kMaxStages));
  }
  stages_.push_back(std::move(stage));
  return absl::OkStatus();
}

void PreTokenizer::run(size_t stage, std::string_view text, SplitRegex::MatchState& state,
                       WordSink& sink) const {
  if (text.empty()) return;
  if (stage == stages_.size()) return sink.word(text);
  const SplitBehavior behavior = stages_[stage].behavior;
  if (behavior != SplitBehavior::isolated && behavior != SplitBehavior::removed) {
    return run_general(stage, text, state, sink);
  }
  const bool removed = behavior == SplitBehavior::removed;
  const bool invert = stages_[stage].invert;
  for_each_piece(stages_[stage], text, state, [&](size_t begin, size_t end, bool match) {
    if (removed && match != invert) return;
    run(stage + 1, text.substr(begin, end - begin), state, sink);
  });
}

void PreTokenizer::run_general(size_t stage, std::string_view text, SplitRegex::MatchState& state,
                               WordSink& sink) const {
  const bool invert = stages_[stage].invert;
  std::vector<Piece> pieces;
  for_each_piece(stages_[stage], text, state, [&](size_t begin, size_t end, bool match) {
    pieces.push_back({begin, end, match != invert});
  });
  // joins[i]: piece i continues piece i - 1.
  const auto joins = [&](size_t i) {
    const bool before = pieces[i - 1].match;
    const bool here = pieces[i].match;
    switch (stages_[stage].behavior) {
      case SplitBehavior::merged_with_previous: return here && !before;
      case SplitBehavior::merged_with_next: return before && !here;
      case SplitBehavior::contiguous: return before == here;
      default: return false;
    }
  };
  for (size_t i = 0; i < pieces.size();) {
    const size_t begin = pieces[i].begin;
    size_t last = i;
    while (last + 1 < pieces.size() && joins(last + 1)) ++last;
    run(stage + 1, text.substr(begin, pieces[last].end - begin), state, sink);
    i = last + 1;
  }
}

}  // namespace millrace
