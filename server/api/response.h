// Writers of chat.completion, chat.completion.chunk and text_completion. The streamed chunk is the
// hot path: everything that does not change is built once per choice and the rest is appended to
// the caller's buffer. Output is always well-formed UTF-8 and strict JSON. Values and pure
// functions; one owner each.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/token.h"
#include "server/api/route.h"

namespace millrace::api {

// The identity that all chunks of an answer share.
struct AnswerHead {
  Route route = Route::chat;
  std::string id;
  int64_t created = 0;
  std::string model;
  std::string system_fingerprint;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;
  std::optional<int64_t> cached_tokens;  // absent: not reported
};

// `bytes` are the raw bytes of the token; the JSON text shows ill-formed parts as U+FFFD.
struct ScoredToken {
  Token id = -1;
  std::string bytes;
  float logprob = 0.0f;
};

struct LogprobEntry {
  ScoredToken chosen;
  bool has_score = true;         // false: the first token of a prompt
  std::vector<ScoredToken> top;  // best first
  int64_t text_offset = 0;       // characters before it in the text; completions only
};

// What became known at once about one choice. The empty finish_reason means that more will come.
struct Delta {
  std::string text;
  std::vector<LogprobEntry> logprobs;
  std::vector<Token> token_ids;
  std::string finish_reason;
  std::string stop_reason;  // JSON text: null, a number or a string
};

// Which optional members appear.
struct AnswerShape {
  bool logprobs = false;
  bool token_ids = false;
  bool usage_null = false;  // "usage":null on chunks that carry none
};

// Writes the chunks of one choice as server-sent events.
class ChunkWriter {
 public:
  ChunkWriter(const AnswerHead& head, int choice_idx, AnswerShape shape);
  // The first event of a chat choice; nothing on completions. `prompt_token_ids` may be null.
  void write_role(std::string& out, const std::vector<Token>* prompt_token_ids,
                  const Usage* usage) const;
  void write(std::string& out, const Delta& delta, const Usage* usage,
             const std::vector<Token>* prompt_token_ids = nullptr) const;

 private:
  void write_tail(std::string& out, const Usage* usage) const;
  Route route_;
  AnswerShape shape_;
  std::string prefix_;  // up to and including the choice's index
};

// The chunk with empty choices that ends a stream with include_usage.
void write_usage_chunk(std::string& out, const AnswerHead& head, const Usage& usage);
// An error inside a stream; nothing follows it.
void write_error_event(std::string& out, std::string_view error_json);
void write_done(std::string& out);

// The deltas of one choice, joined.
struct WholeChoice {
  Delta delta;
  std::string prompt_logprobs_json;  // empty: the member is left out
  const std::vector<Token>* prompt_token_ids = nullptr;
};
std::string whole_answer_json(const AnswerHead& head, AnswerShape shape,
                              std::span<const WholeChoice> choices, const Usage& usage);

// A prompt's scores in vLLM's shape: null, then {"<id>":{"logprob","rank","decoded_token"}} each.
std::string prompt_logprobs_json(std::span<const LogprobEntry> entries);

}  // namespace millrace::api
