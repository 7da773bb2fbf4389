// PreTokenizer: cuts a text into the words within which BPE merges, by a sequence of stages that
// each split what the previous one left. Immutable after construction; any thread, each with its
// own MatchState.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/base/status.h"
#include "engine/text/split_regex.h"
#include "engine/text/split_rule.h"

namespace millrace {

// What becomes of a match; a gap between two matches is always a piece of its own.
enum class SplitBehavior : uint8_t {
  isolated,
  removed,
  merged_with_previous,
  merged_with_next,
  contiguous
};

struct SplitStage {
  // A scanner, a compiled pattern, or a literal string.
  std::variant<SplitRule, std::shared_ptr<const SplitRegex>, std::string> matcher;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  // gaps are the matches
};

class WordSink {
 public:
  virtual ~WordSink() = default;
  virtual void word(std::string_view text) = 0;
};

class PreTokenizer {
 public:
  static constexpr size_t kMaxStages = 16;

  // INVALID_ARGUMENT beyond kMaxStages.
  Status add(SplitStage stage);
  bool empty() const { return stages_.empty(); }

  // Calls sink.word for every word in order; no word is empty.
  void split(std::string_view text, SplitRegex::MatchState& state, WordSink& sink) const {
    run(0, text, state, sink);
  }

 private:
  struct Piece {
    size_t begin, end;
    bool match;
  };
  void run(size_t stage, std::string_view text, SplitRegex::MatchState& state,
           WordSink& sink) const;
  void run_general(size_t stage, std::string_view text, SplitRegex::MatchState& state,
                   WordSink& sink) const;

  std::vector<SplitStage> stages_;
};

// The stages that a GGUF file's tokenizer.ggml.pre names, and what goes with the name.
struct NamedSplit {
  std::vector<SplitStage> stages;
  bool ignore_merges = false;  // a word that is a vocabulary entry is that entry
  bool add_bos = false;        // unless the file says otherwise
};
// INVALID_ARGUMENT names `pre` and lists what is supported.
StatusOr<NamedSplit> split_for_gguf(std::string_view pre);
// The scanner of a pattern as tokenizer.json and tekken.json write it, or the compiled pattern.
StatusOr<SplitStage> split_for_pattern(std::string_view pattern);
// cl100k_base, o200k_base, gpt2, r50k_base, p50k_base, qwen2, qwen35, llama3.
StatusOr<SplitStage> split_for_tiktoken(std::string_view name);

// Every numeric character alone, or runs of them.
SplitRule digits_rule(bool individual);
// \p{P} and the ASCII symbols, one at a time.
SplitRule punctuation_rule();

}  // namespace millrace
