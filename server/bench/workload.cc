#include "server/bench/workload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

namespace millrace::bench {
namespace {

using Json = nlohmann::json;

constexpr int kDefaultPrompts = 1000;
constexpr int kFirstId = 100;  // below it lie control tokens and single bytes of most vocabularies
constexpr std::array<const char*, 32> kWords = {
    "time", "year", "people", "way",  "day",   "man",  "thing", "woman", "life",  "child", "world",
    "hand", "part", "place",  "case", "week",  "work", "fact",  "group", "point", "home",  "water",
    "room", "area", "money",  "book", "night", "word", "house", "side",  "head",  "friend"};

// What every request of the run says beside its prompt.
std::string frame(const WorkloadOptions& o, Json body) {
  if (!body.contains("model")) body["model"] = o.model;
  body["stream"] = true;
  body["stream_options"]["include_usage"] = true;
  // The model's name comes from the command line and may be no UTF-8.
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// One independent sequence of draws for each use of a seed.
enum class Use : uint32_t { prefix, prompts, warmups, arrivals };
std::mt19937_64 random_for(uint64_t seed, Use use) {
  std::seed_seq words{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                      static_cast<uint32_t>(use)};
  return std::mt19937_64(words);
}

// Draws prompts one after the other; the prefix is drawn first and is the same for all.
class RandomPrompts {
 public:
  RandomPrompts(const WorkloadOptions& options, Use use)
      : o_(options),
        chat_(options.endpoint == kChatPath),
        random_(random_for(options.seed, Use::prefix)) {
    append(prefix_, o_.random_prefix_len);
    random_ = random_for(options.seed, use);
  }

  LoadRequest next() {
    Prompt prompt = prefix_;
    append(prompt, o_.random_input_len);
    return request(prompt, o_.random_output_len);
  }
  LoadRequest prefix_alone() const { return request(prefix_, 1); }

 private:
  struct Prompt {
    std::vector<int> ids;
    std::string words;
  };

  void append(Prompt& prompt, int count) {
    for (int i = 0; i < count; ++i) {
      const uint64_t drawn = random_();
      if (chat_) {
        if (!prompt.words.empty()) prompt.words += ' ';
        prompt.words += kWords[drawn % kWords.size()];
      } else {
        prompt.ids.push_back(
            kFirstId + static_cast<int>(drawn % static_cast<uint64_t>(o_.vocab_size - kFirstId)));
      }
    }
  }

  LoadRequest request(const Prompt& prompt, int max_tokens) const {
    const bool exact = o_.ignore_eos.value_or(true);
    Json body = {{"temperature", 0}};
    if (!o_.extra_body.empty()) body.update(Json::parse(o_.extra_body));
    body["max_tokens"] = max_tokens;
    if (exact) {
      body["ignore_eos"] = true;
      body["min_tokens"] = max_tokens;
    }
    if (chat_) {
      body["messages"] = Json::array({Json{{"role", "user"}, {"content", prompt.words}}});
    } else {
      body["prompt"] = prompt.ids;
    }
    LoadRequest out;
    out.path = o_.endpoint;
    out.body = frame(o_, std::move(body));
    out.prompt_tokens = static_cast<int>(prompt.ids.size());
    out.expected_tokens = exact ? max_tokens : 0;
    return out;
  }

  const WorkloadOptions& o_;
  const bool chat_;
  std::mt19937_64 random_;
  Prompt prefix_;
};

Status row_error(const std::string& file, int line, const std::string& what) {
  return absl::InvalidArgumentError(file + ", line " + std::to_string(line) + ": " + what);
}

struct TraceRow {
  LoadRequest request;
  bool timed = false;
};

StatusOr<TraceRow> trace_row(const WorkloadOptions& o, const std::string& text, int line) {
  Json body = Json::parse(text, nullptr, false);
  if (!body.is_object()) return row_error(o.trace, line, "a row must be one JSON object.");
  TraceRow row;
  if (body.contains("arrival_s")) {
    const Json at = body["arrival_s"];
    row.timed = true;
    if (!at.is_number() || !(at.get<double>() >= 0.0))
      return row_error(o.trace, line, "arrival_s must be a number of seconds, 0 or more.");
    row.request.due_s = at.get<double>();
    body.erase("arrival_s");
  }
  if (body.contains("messages") == body.contains("prompt"))
    return row_error(o.trace, line, "a row must have either messages or a prompt.");
  row.request.path = body.contains("messages") ? kChatPath : kCompletionsPath;
  if (body.contains("stream_options") && !body["stream_options"].is_object())
    return row_error(o.trace, line, "stream_options must be an object.");
  const char* length =
      body.contains("max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
  const bool bounded = body.contains(length) && body[length].is_number_integer();
  if (o.ignore_eos.value_or(false) && !bounded)
    return row_error(o.trace, line, "with --ignore-eos each row needs max_tokens.");
  if (o.ignore_eos) body["ignore_eos"] = *o.ignore_eos;
  if (o.ignore_eos.value_or(false)) body["min_tokens"] = body[length];
  if (bounded && body.value("ignore_eos", Json()) == true)
    row.request.expected_tokens = body[length].get<int>();
  const Json prompt = body.value("prompt", Json());
  if (prompt.is_array() && !prompt.empty() && prompt.front().is_number_integer())
    row.request.prompt_tokens = static_cast<int>(prompt.size());
  row.request.body = frame(o, std::move(body));
  return row;
}

StatusOr<std::vector<LoadRequest>> read_trace(const WorkloadOptions& o) {
  std::ifstream file(o.trace);
  if (!file) return absl::NotFoundError("--trace " + o.trace + " cannot be read.");
  std::vector<LoadRequest> out;
  size_t timed = 0;
  std::string text;
  for (int line = 1; std::getline(file, text); ++line) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (o.num_prompts > 0 && out.size() == static_cast<size_t>(o.num_prompts)) break;
    MR_ASSIGN_OR_RETURN(TraceRow row, trace_row(o, text, line));
    timed += row.timed ? 1 : 0;
    out.push_back(std::move(row.request));
    if (timed > 0 && timed < out.size())
      return row_error(o.trace, line, "either all rows must have arrival_s or none.");
  }
  if (out.empty()) return absl::InvalidArgumentError("--trace " + o.trace + " has no row.");
  std::stable_sort(out.begin(), out.end(),
                   [](const LoadRequest& a, const LoadRequest& b) { return a.due_s < b.due_s; });
  return out;
}

Status check(const WorkloadOptions& o, bool warm_prefix) {
  if (o.endpoint != kCompletionsPath && o.endpoint != kChatPath)
    return absl::InvalidArgumentError("--endpoint is " + o.endpoint + "; it must be " +
                                      kCompletionsPath + " or " + kChatPath + ".");
  if (!(o.request_rate > 0.0))
    return absl::InvalidArgumentError("--request-rate must be above 0, or inf.");
  if (!(o.burstiness > 0.0) || !std::isfinite(o.burstiness))
    return absl::InvalidArgumentError("--burstiness must be a number above 0.");
  if (o.vocab_size <= kFirstId)
    return absl::InvalidArgumentError("--vocab-size must be above " + std::to_string(kFirstId) +
                                      ".");
  if (!o.extra_body.empty() && !Json::parse(o.extra_body, nullptr, false).is_object())
    return absl::InvalidArgumentError("--extra-body must be a JSON object.");
  if (warm_prefix && (o.random_prefix_len == 0 || !o.trace.empty()))
    return absl::InvalidArgumentError("--warm-prefix needs --random-prefix-len and no --trace.");
  return absl::OkStatus();
}

}  // namespace

std::vector<double> arrival_times(int count, double rate, double burstiness, uint64_t seed) {
  std::vector<double> out(static_cast<size_t>(count), 0.0);
  if (!std::isfinite(rate)) return out;
  std::mt19937_64 random = random_for(seed, Use::arrivals);
  std::gamma_distribution<double> gap(burstiness, 1.0 / (rate * burstiness));
  for (size_t i = 1; i < out.size(); ++i) out[i] = out[i - 1] + gap(random);
  return out;
}

StatusOr<Workload> make_workload(const WorkloadOptions& o, int num_warmups, bool warm_prefix) {
  MR_RETURN_IF_ERROR(check(o, warm_prefix));
  Workload out;
  if (!o.trace.empty()) {
    MR_ASSIGN_OR_RETURN(out.requests, read_trace(o));
    for (size_t i = 0; i < static_cast<size_t>(num_warmups); ++i)
      out.warmups.push_back(out.requests[i % out.requests.size()]);
  } else {
    RandomPrompts prompts(o, Use::prompts);
    RandomPrompts others(o, Use::warmups);
    const int count = o.num_prompts > 0 ? o.num_prompts : kDefaultPrompts;
    for (int i = 0; i < count; ++i) out.requests.push_back(prompts.next());
    if (warm_prefix) out.warmups.push_back(prompts.prefix_alone());
    for (int i = 0; i < num_warmups; ++i) out.warmups.push_back(others.next());
  }
  if (std::isfinite(o.request_rate)) {
    const auto due =
        arrival_times(static_cast<int>(out.requests.size()), o.request_rate, o.burstiness, o.seed);
    for (size_t i = 0; i < due.size(); ++i) out.requests[i].due_s = due[i];
  }
  return out;
}

}  // namespace millrace::bench
