#include "server/bench/load_answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace millrace::bench {
namespace {

using Json = nlohmann::json;

constexpr size_t kShownBytes = 200;

// For a terminal: what a server sent may be anything.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, kShownBytes));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return out;
}

// The message of an OpenAI error object, or the start of whatever else was sent.
std::string error_text(std::string_view body) {
  const Json json = Json::parse(body, nullptr, false);
  if (json.is_object() && json.contains("error")) {
    const Json& error = json["error"];
    if (error.is_string()) return shown(error.get<std::string>());
    if (error.is_object() && error.contains("message") && error["message"].is_string())
      return shown(error["message"].get<std::string>());
  }
  return shown(body);
}

bool has_text(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() && !it->get_ref<const std::string&>().empty();
}

bool is_null(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() || it->is_null();
}

bool carries_token(const Json& choice) {
  if (!choice.is_object()) return false;
  const bool open = is_null(choice, "finish_reason");
  const auto delta = choice.find("delta");
  if (delta == choice.end()) return has_text(choice, "text") || (open && choice.contains("text"));
  if (!delta->is_object()) return false;
  for (const char* key : {"content", "reasoning_content", "reasoning"})
    if (has_text(*delta, key)) return true;
  if (!is_null(*delta, "tool_calls")) return true;
  return open && delta->contains("content") && !delta->contains("role");
}

int integer(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number_integer() ? it->get<int>() : 0;
}

// Takes one event after the other; keeps the first failure.
class AnswerReader {
 public:
  explicit AnswerReader(const Recording& recording) : recording_(recording) {}

  void on_event(std::string_view name, std::string_view data, size_t end) {
    if (name == "error") return fail("error_event", error_text(data));
    if (name != "data" || !answer_.failure.empty()) return;
    if (data == "[DONE]") {
      done_ = true;
      return;
    }
    const Json json = Json::parse(data, nullptr, false);
    if (!json.is_object()) return fail("bad_event", "an event is no JSON object: " + shown(data));
    if (json.contains("error") && !json["error"].is_null())
      return fail("error_event", error_text(data));
    if (const auto usage = json.find("usage"); usage != json.end() && usage->is_object())
      take_usage(*usage);
    if (const auto choices = json.find("choices"); choices != json.end() && choices->is_array())
      take_choices(*choices, end);
  }

  Answer finish() {
    if (!done_) fail("missing_done", "the stream ended without [DONE]");
    if (chunks_ == 0) fail("empty", "the answer had no token");
    answer_.tokens = counted_ > 0 ? counted_ : chunks_;
    return std::move(answer_);
  }

 private:
  void fail(std::string failure, std::string message) {
    if (!answer_.failure.empty()) return;
    answer_.failure = std::move(failure);
    answer_.message = std::move(message);
  }

  void take_usage(const Json& usage) {
    counted_ = integer(usage, "completion_tokens");
    answer_.prompt_tokens = integer(usage, "prompt_tokens");
    const auto details = usage.find("prompt_tokens_details");
    if (details != usage.end() && details->is_object())
      answer_.cached_tokens = integer(*details, "cached_tokens");
  }

  void take_choices(const Json& choices, size_t end) {
    bool token = false;
    for (const Json& choice : choices) token = token || carries_token(choice);
    if (!token) return;
    const double now = time_of(end);
    if (chunks_++ == 0) {
      answer_.first_s = now;
    } else {
      answer_.gaps_s.push_back(now - answer_.last_s);
    }
    answer_.last_s = now;
  }

  // When the byte before `end` was read. Events come in order, so the search never goes back.
  double time_of(size_t end) {
    while (mark_ + 1 < recording_.marks.size() && recording_.marks[mark_].end < end) ++mark_;
    return seconds_between(recording_.start, recording_.marks[mark_].time);
  }

  const Recording& recording_;
  Answer answer_;
  size_t mark_ = 0;
  int chunks_ = 0;
  int counted_ = 0;
  bool done_ = false;
};

}  // namespace

void for_each_event(std::string_view stream, const EventHandler& handle) {
  std::string name, data;
  size_t at = 0;
  while (at < stream.size()) {
    const size_t line_end = stream.find_first_of("\r\n", at);
    if (line_end == std::string_view::npos) return;
    const std::string_view line = stream.substr(at, line_end - at);
    at = line_end + (stream.substr(line_end, 2) == "\r\n" ? 2 : 1);
    if (line.empty()) {
      if (!name.empty()) handle(name, data, at);
      name.clear();
      data.clear();
      continue;
    }
    const size_t colon = std::min(line.find(':'), line.size());
    const std::string_view field = line.substr(0, colon);
    if (field.empty() || field == "event" || field == "id" || field == "retry") continue;
    std::string_view value = line.substr(std::min(colon + 1, line.size()));
    if (value.starts_with(' ')) value.remove_prefix(1);
    if (field == name) data += '\n';
    name = field;
    data += value;
  }
}

Answer read_answer(const Recording& recording) {
  Answer answer;
  if (!recording.failure.empty()) {
    answer.failure = recording.failure;
    answer.message = recording.message;
    return answer;
  }
  if (recording.status != 200) {
    answer.failure = "http_" + std::to_string(recording.status);
    answer.message = error_text(recording.body);
    return answer;
  }
  AnswerReader reader(recording);
  for_each_event(recording.body, [&](std::string_view name, std::string_view data, size_t end) {
    reader.on_event(name, data, end);
  });
  return reader.finish();
}

}  // namespace millrace::bench
