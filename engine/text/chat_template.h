// ChatTemplate: a compiled Jinja chat template (the subset that real templates use, rendered byte
// for byte as transformers' sandboxed jinja2 does with trim_blocks and lstrip_blocks).
// Strings that come from users carry a mark through every operation, so the caller knows which
// bytes of the rendered text are data. Immutable after compile; render() may run on any number of
// threads.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/text/tokenizer.h"

namespace millrace {

struct RenderLimits {
  int64_t max_steps = 2'000'000;  // evaluated nodes, loop turns, text worked through
  int64_t max_output_bytes = 16 << 20;
  int max_depth = 128;  // nested calls and expressions
};

struct RenderedText {
  std::string text;
  std::vector<ByteRange> user_ranges;  // ascending, disjoint, merged
};

class ChatTemplate {
 public:
  // INVALID_ARGUMENT names the line and the construct. `source` is the template's text.
  static StatusOr<std::unique_ptr<ChatTemplate>> compile(std::string source);
  ~ChatTemplate();

  // `context` is a JSON object whose members become variables (messages, tools,
  // add_generation_prompt, bos_token, kwargs ...), member order kept (nlohmann::ordered_json).
  // Strings under members named *_token (bos_token, eos_token, ...) are template text; all other
  // strings, keys included, are user data. INVALID_ARGUMENT carries what raise_exception said, or
  // the line and reason of a failure; RESOURCE_EXHAUSTED names the limit.
  StatusOr<RenderedText> render(const nlohmann::ordered_json& context,
                                const RenderLimits& limits = {}) const;

  const std::string& source() const;

  // What the template does with replayed tool calls, probed once at compile.
  // Arguments as a mapping come out well (iterated, or through tojson); a template that prints
  // the text itself gives false, and so does one that shows no tool calls.
  bool wants_argument_objects() const;
  bool supports_tools() const;
  bool supports_system_role() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
