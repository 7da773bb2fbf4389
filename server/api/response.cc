#include "server/api/response.h"

#include <algorithm>

#include "engine/text/detokenizer.h"
#include "server/api/json_text.h"

namespace millrace::api {
namespace {

void append_integer(std::string& out, int64_t value) { out += std::to_string(value); }

std::string token_text(const ScoredToken& token) {
  std::string bytes = token.bytes;
  return take_utf8(bytes, true);
}

// {"id":...,"object":...,"created":...,"model":...,"system_fingerprint":...
void append_head(std::string& out, const AnswerHead& head, std::string_view object) {
  out += "{\"id\":";
  append_json_string(out, head.id);
  out += ",\"object\":\"";
  out += object;
  out += "\",\"created\":";
  append_integer(out, head.created);
  out += ",\"model\":";
  append_json_string(out, head.model);
  out += ",\"system_fingerprint\":";
  if (head.system_fingerprint.empty())
    out += "null";
  else
    append_json_string(out, head.system_fingerprint);
}

std::string_view chunk_object(Route route) {
  return route == Route::chat ? "chat.completion.chunk" : "text_completion";
}

void append_usage(std::string& out, const Usage& usage) {
  out += "{\"prompt_tokens\":";
  append_integer(out, usage.prompt_tokens);
  out += ",\"completion_tokens\":";
  append_integer(out, usage.completion_tokens);
  out += ",\"total_tokens\":";
  append_integer(out, usage.prompt_tokens + usage.completion_tokens);
  if (usage.cached_tokens) {
    out += ",\"prompt_tokens_details\":{\"cached_tokens\":";
    append_integer(out, *usage.cached_tokens);
    out += '}';
  }
  out += ",\"completion_tokens_details\":{\"reasoning_tokens\":";
  append_integer(out, usage.reasoning_tokens);
  out += "}}";
}

void append_ids(std::string& out, const std::vector<Token>& ids) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    append_integer(out, ids[i]);
  }
  out += ']';
}

// ---- Log-probabilities ----------------------------------------------------------------------

// "token":...,"logprob":...,"bytes":[...]
void append_chat_token(std::string& out, const ScoredToken& token) {
  out += "\"token\":";
  append_json_string(out, token_text(token));
  out += ",\"logprob\":";
  append_json_score(out, token.logprob);
  out += ",\"bytes\":[";
  for (size_t i = 0; i < token.bytes.size(); ++i) {
    if (i > 0) out += ',';
    append_integer(out, static_cast<unsigned char>(token.bytes[i]));
  }
  out += ']';
}

void append_chat_logprobs(std::string& out, std::span<const LogprobEntry> entries) {
  out += "{\"content\":[";
  for (size_t i = 0; i < entries.size(); ++i) {
    out += i > 0 ? ",{" : "{";
    append_chat_token(out, entries[i].chosen);
    out += ",\"top_logprobs\":[";
    for (size_t t = 0; t < entries[i].top.size(); ++t) {
      out += t > 0 ? ",{" : "{";
      append_chat_token(out, entries[i].top[t]);
      out += '}';
    }
    out += "]}";
  }
  out += "],\"refusal\":null}";
}

// {"text": score, ...}: texts of different tokens can be equal; the best one keeps the name.
void append_top_by_text(std::string& out, const LogprobEntry& entry) {
  out += '{';
  std::vector<std::string> seen;
  const auto add = [&](const ScoredToken& token) {
    std::string text = token_text(token);
    if (std::find(seen.begin(), seen.end(), text) != seen.end()) return;
    if (!seen.empty()) out += ',';
    append_json_string(out, text);
    out += ':';
    append_json_score(out, token.logprob);
    seen.push_back(std::move(text));
  };
  for (const ScoredToken& token : entry.top) add(token);
  add(entry.chosen);
  out += '}';
}

template <class Append>
void append_column(std::string& out, std::string_view name, std::span<const LogprobEntry> entries,
                   Append&& append) {
  out += name;
  out += '[';
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out += ',';
    append(entries[i]);
  }
  out += ']';
}

void append_completion_logprobs(std::string& out, std::span<const LogprobEntry> entries) {
  append_column(out, "{\"tokens\":", entries,
                [&](const LogprobEntry& e) { append_json_string(out, token_text(e.chosen)); });
  append_column(out, ",\"token_logprobs\":", entries, [&](const LogprobEntry& e) {
    if (e.has_score)
      append_json_score(out, e.chosen.logprob);
    else
      out += "null";
  });
  append_column(out, ",\"top_logprobs\":", entries, [&](const LogprobEntry& e) {
    if (e.has_score)
      append_top_by_text(out, e);
    else
      out += "null";
  });
  append_column(out, ",\"text_offset\":", entries,
                [&](const LogprobEntry& e) { append_integer(out, e.text_offset); });
  out += '}';
}

// From ,"logprobs": to the end of the choice's object.
void append_choice_end(std::string& out, Route route, const AnswerShape& shape,
                       const Delta& delta) {
  out += ",\"logprobs\":";
  if (!shape.logprobs || (delta.logprobs.empty() && delta.text.empty()))
    out += "null";
  else if (route == Route::chat)
    append_chat_logprobs(out, delta.logprobs);
  else
    append_completion_logprobs(out, delta.logprobs);
  if (shape.token_ids) {
    out += ",\"token_ids\":";
    append_ids(out, delta.token_ids);
  }
  out += ",\"finish_reason\":";
  if (delta.finish_reason.empty())
    out += "null";
  else
    append_json_string(out, delta.finish_reason);
  if (!delta.finish_reason.empty()) {
    out += ",\"stop_reason\":";
    out += delta.stop_reason.empty() ? "null" : delta.stop_reason;
  }
  out += '}';
}

void append_prompt_ids(std::string& out, const std::vector<Token>* ids) {
  if (!ids) return;
  out += ",\"prompt_token_ids\":";
  append_ids(out, *ids);
}

}  // namespace

ChunkWriter::ChunkWriter(const AnswerHead& head, int choice_idx, AnswerShape shape)
    : route_(head.route), shape_(shape), prefix_("data: ") {
  append_head(prefix_, head, chunk_object(head.route));
  prefix_ += ",\"choices\":[{\"index\":";
  append_integer(prefix_, choice_idx);
}

void ChunkWriter::write_tail(std::string& out, const Usage* usage) const {
  out += ']';
  if (usage) {
    out += ",\"usage\":";
    append_usage(out, *usage);
  } else if (shape_.usage_null) {
    out += ",\"usage\":null";
  }
  out += "}\n\n";
}

void ChunkWriter::write_role(std::string& out, const std::vector<Token>* prompt_token_ids,
                             const Usage* usage) const {
  if (route_ != Route::chat) return;
  out += prefix_;
  append_prompt_ids(out, prompt_token_ids);
  out +=
      ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
      "\"finish_reason\":null}";
  write_tail(out, usage);
}

void ChunkWriter::write(std::string& out, const Delta& delta, const Usage* usage,
                        const std::vector<Token>* prompt_token_ids) const {
  out += prefix_;
  append_prompt_ids(out, prompt_token_ids);
  if (route_ == Route::chat) {
    out += ",\"delta\":{";
    if (!delta.text.empty() || delta.finish_reason.empty()) {
      out += "\"content\":";
      append_json_string(out, delta.text);
    }
    out += '}';
  } else {
    out += ",\"text\":";
    append_json_string(out, delta.text);
  }
  append_choice_end(out, route_, shape_, delta);
  write_tail(out, usage);
}

void write_usage_chunk(std::string& out, const AnswerHead& head, const Usage& usage) {
  out += "data: ";
  append_head(out, head, chunk_object(head.route));
  out += ",\"choices\":[],\"usage\":";
  append_usage(out, usage);
  out += "}\n\n";
}

void write_error_event(std::string& out, std::string_view error_json) {
  out += "data: ";
  out += error_json;
  out += "\n\n";
}

void write_done(std::string& out) { out += "data: [DONE]\n\n"; }

std::string whole_answer_json(const AnswerHead& head, AnswerShape shape,
                              std::span<const WholeChoice> choices, const Usage& usage) {
  std::string out;
  append_head(out, head, head.route == Route::chat ? "chat.completion" : "text_completion");
  out += ",\"choices\":[";
  for (size_t i = 0; i < choices.size(); ++i) {
    const WholeChoice& choice = choices[i];
    out += i > 0 ? ",{\"index\":" : "{\"index\":";
    append_integer(out, static_cast<int64_t>(i));
    append_prompt_ids(out, choice.prompt_token_ids);
    if (!choice.prompt_logprobs_json.empty()) {
      out += ",\"prompt_logprobs\":";
      out += choice.prompt_logprobs_json;
    }
    out += head.route == Route::chat ? ",\"message\":{\"role\":\"assistant\",\"content\":"
                                     : ",\"text\":";
    append_json_string(out, choice.delta.text);
    if (head.route == Route::chat) out += ",\"refusal\":null}";
    append_choice_end(out, head.route, shape, choice.delta);
  }
  out += "],\"usage\":";
  append_usage(out, usage);
  out += '}';
  return out;
}

std::string prompt_logprobs_json(std::span<const LogprobEntry> entries) {
  std::string out = "[";
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out += ',';
    const LogprobEntry& entry = entries[i];
    if (!entry.has_score) {
      out += "null";
      continue;
    }
    out += '{';
    bool chosen_listed = false, first = true;
    const auto add = [&](const ScoredToken& token, int64_t rank) {
      if (!first) out += ',';
      first = false;
      out += '"';
      append_integer(out, token.id);
      out += "\":{\"logprob\":";
      append_json_score(out, token.logprob);
      if (rank > 0) {
        out += ",\"rank\":";
        append_integer(out, rank);
      }
      out += ",\"decoded_token\":";
      append_json_string(out, token_text(token));
      out += '}';
    };
    for (size_t t = 0; t < entry.top.size(); ++t) {
      add(entry.top[t], static_cast<int64_t>(t) + 1);
      chosen_listed = chosen_listed || entry.top[t].id == entry.chosen.id;
    }
    if (!chosen_listed) add(entry.chosen, 0);
    out += '}';
  }
  out += ']';
  return out;
}

}  // namespace millrace::api
