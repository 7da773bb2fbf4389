// Streams against whole answers and against a literal reading of the rules: random scripts cut into
// tokens in every way, with every option that changes what a client sees.
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "server/app/generation.h"
#include "tests/server/app/piece_tokenizer.h"

namespace millrace::app {
namespace {

using Json = nlohmann::ordered_json;
using Kind = PieceTokenizer::Kind;

constexpr Token kEnd = 256;
constexpr Token kBos = 257;

const PieceTokenizer kTokenizer({{"<end>", Kind::control},
                                 {"<s>", Kind::control},
                                 {"sto", Kind::text},
                                 {"pped", Kind::text},
                                 {"\xf0\x9f", Kind::text},
                                 {"\x98\x80!", Kind::text},
                                 {"\xc3\xa9\n", Kind::text},
                                 {" Two", Kind::text},
                                 {"\xef\xbf\xbd", Kind::text}},
                                kBos);

std::unique_ptr<ChatTemplate> chat_template() {
  return *ChatTemplate::compile("{% for m in messages %}{{ m.content }}{% endfor %}");
}

struct Fixture {
  std::unique_ptr<ChatTemplate> source = chat_template();
  std::unique_ptr<GenerationContext> context;
  Fixture() {
    ContextOptions options;
    options.model_names = {"m"};
    options.max_model_len = 10'000;
    options.vocab = kTokenizer.size();
    options.eos_tokens = {kEnd};
    context = *GenerationContext::create(options, kTokenizer, source.get(), absl::OkStatus());
  }
};

struct Script {
  std::vector<Token> tokens;
  Finish finish = Finish::stop;  // stop: by one more token, kEnd; length: with the last token
};

// What a client can see of a choice.
struct Seen {
  std::string text;
  Json finish, stop_reason;
  Json logprobs = Json::array();
  Json token_ids = Json::array();
  bool operator==(const Seen&) const = default;
};
struct Answer {
  std::vector<Seen> choices;
  Json usage;
  std::vector<Json> chunks;  // of a stream
};

void add_logprobs(const Json& logprobs, Seen& seen) {
  if (logprobs.is_null()) return;
  if (logprobs.contains("content")) {
    for (const Json& row : logprobs["content"]) seen.logprobs.push_back(row);
    return;
  }
  for (size_t i = 0; i < logprobs["tokens"].size(); ++i)
    seen.logprobs.push_back({logprobs["tokens"][i], logprobs["token_logprobs"][i],
                             logprobs["top_logprobs"][i], logprobs["text_offset"][i]});
}

std::vector<TopLogprob> alternatives(Token token) {
  return {{token, -0.5f}, {'q', -1.0f}, {'r', -std::numeric_limits<float>::infinity()}};
}

// The events of one engine request for a script.
std::vector<TokenEvent> events_of(const Request& r, const Script& script) {
  std::vector<TokenEvent> events;
  const auto add = [&](Token token, Finish finish) {
    TokenEvent e{.id = r.id, .token = token, .logprob = -0.5f, .finish = finish};
    if (r.sampling.logprobs > 0) e.top = alternatives(token);
    events.push_back(std::move(e));
  };
  for (size_t i = 0; i < script.tokens.size(); ++i) {
    const bool last = i + 1 == script.tokens.size() && script.finish == Finish::length;
    add(script.tokens[i], last ? Finish::length : Finish::none);
  }
  if (script.finish == Finish::stop) add(kEnd, Finish::stop);
  if (events.empty()) events.push_back({.id = r.id, .finish = Finish::length});
  events.front().cached_tokens = 0;
  if (r.sampling.prompt_logprobs < 0) return events;
  // Scores of the prompt come ahead, in two parts.
  std::vector<TokenEvent> scores(2, TokenEvent{.id = r.id});
  for (size_t i = 1; i < r.prompt.size(); ++i)
    scores[i < r.prompt.size() / 2 ? 0 : 1].prompt_scores.push_back(
        {r.prompt[i], -0.25f, alternatives(r.prompt[i])});
  events.insert(events.begin(), scores.begin(), scores.end());
  return events;
}

Answer read_stream(const std::string& output, size_t num_choices) {
  Answer answer;
  answer.choices.resize(num_choices);
  bool done = false;
  for (size_t begin = 0, end; begin < output.size(); begin = end + 2) {
    end = output.find("\n\n", begin);
    EXPECT_NE(end, std::string::npos);
    if (end == std::string::npos) break;
    EXPECT_EQ(output.compare(begin, 6, "data: "), 0);
    const std::string data = output.substr(begin + 6, end - begin - 6);
    EXPECT_FALSE(done) << "after [DONE]";
    done = data == "[DONE]";
    if (done) continue;
    const Json chunk = Json::parse(data, nullptr, false);
    EXPECT_FALSE(chunk.is_discarded()) << data;
    answer.chunks.push_back(chunk);
    if (chunk["choices"].empty()) answer.usage = chunk["usage"];
    for (const Json& c : chunk["choices"]) {
      Seen& seen = answer.choices[c["index"]];
      EXPECT_TRUE(seen.finish.is_null()) << "after the end of the choice";
      if (c.contains("text")) seen.text += c["text"].get<std::string>();
      if (c.contains("delta")) seen.text += c["delta"].value("content", "");
      add_logprobs(c["logprobs"], seen);
      if (c.contains("token_ids"))
        for (const Json& id : c["token_ids"]) seen.token_ids.push_back(id);
      seen.finish = c["finish_reason"];
      if (c.contains("stop_reason")) seen.stop_reason = c["stop_reason"];
    }
  }
  EXPECT_TRUE(done);
  return answer;
}

Answer read_whole(const std::string& text) {
  Answer answer;
  const Json whole = Json::parse(text, nullptr, false);
  EXPECT_FALSE(whole.is_discarded()) << text;
  answer.usage = whole["usage"];
  for (const Json& c : whole["choices"]) {
    Seen& seen = answer.choices.emplace_back();
    seen.text = c.contains("text") ? c["text"] : c["message"]["content"];
    add_logprobs(c["logprobs"], seen);
    if (c.contains("token_ids")) seen.token_ids = c["token_ids"];
    seen.finish = c["finish_reason"];
    seen.stop_reason = c["stop_reason"];
  }
  return answer;
}

// Plays each choice's script, the choices interleaved as `random` says.
Answer play(const GenerationContext& context, api::Route route, Json body,
            const std::vector<Script>& scripts, unsigned random_seed) {
  if (route == api::Route::chat)
    body["messages"] = Json::array({{{"role", "user"}, {"content", "p"}}});
  auto prepared = context.prepare(route, body.dump());
  EXPECT_TRUE(prepared.ok()) << prepared.error().message << body.dump();
  Generation generation(context, *std::move(prepared), {.id = "x"});
  const std::vector<Request> requests = generation.take_requests(10, Clock::now());
  std::vector<std::vector<TokenEvent>> events;
  size_t left = 0;
  for (size_t k = 0; k < requests.size(); ++k) {
    events.push_back(events_of(requests[k], scripts[k % scripts.size()]));
    left += events.back().size();
  }
  std::mt19937 random(random_seed);
  std::vector<size_t> next(events.size());
  std::vector<bool> cancelled(events.size());
  std::string output;
  for (; left > 0; --left) {
    size_t k = random() % events.size();
    while (next[k] == events[k].size()) k = (k + 1) % events.size();
    generation.on_event(events[k][next[k]++]);
    for (const RequestId id : generation.take_cancels()) {
      EXPECT_FALSE(cancelled[id - 10]) << "cancelled twice";
      cancelled[id - 10] = true;
    }
    if (random() % 2) output += generation.take_output();
  }
  output += generation.take_output();
  EXPECT_TRUE(generation.finished() && generation.drained());
  EXPECT_FALSE(generation.error().has_value());
  if (!generation.streaming()) return read_whole(generation.whole_answer());
  return read_stream(output, requests.size());
}

// The rules, read literally: the first stop string by its end, the longest among equals.
Seen expected_of(const Script& script, const std::vector<std::string>& stops, bool include) {
  Seen seen;
  // Behind another token: an answer continues the prompt, so its first token keeps its space.
  std::vector<Token> tokens = script.tokens;
  tokens.insert(tokens.begin(), '.');
  seen.text = kTokenizer.decode(tokens, true).substr(1);
  seen.finish = script.finish == Finish::stop ? "stop" : "length";
  for (size_t end = 1; end <= seen.text.size(); ++end) {
    const std::string* found = nullptr;
    for (const std::string& stop : stops) {
      const bool here = std::string_view(seen.text).substr(0, end).ends_with(stop);
      if (here && (!found || stop.size() > found->size())) found = &stop;
    }
    if (!found) continue;
    seen.text.resize(include ? end : end - found->size());
    seen.finish = "stop";
    seen.stop_reason = *found;
    break;
  }
  return seen;
}

Script random_script(std::mt19937& random) {
  Script script;
  script.finish = random() % 2 ? Finish::stop : Finish::length;
  constexpr Token kSome[] = {'a', 's', 't', 'o', 'p', '\n', 0x80, 0xff, 0xc3, 0xe4};
  for (size_t n = 1 + random() % 12; n > 0; --n) {
    const bool piece = random() % 2 != 0;
    script.tokens.push_back(piece ? static_cast<Token>(258 + random() % 7)
                                  : kSome[random() % std::size(kSome)]);
  }
  return script;
}

TEST(GenerationStream, EqualsTheWholeAnswerAndTheRules) {
  const Fixture f;
  std::mt19937 random(21);
  for (int i = 0; i < 1500; ++i) {
    const auto route = random() % 2 ? api::Route::chat : api::Route::completions;
    const bool chat = route == api::Route::chat;
    Json body = {{"max_tokens", 100}};
    std::vector<std::string> stops;
    const std::string some[] = {"stop", "opp", "\n", "\u00e9\n", "\ufffd", "stopped", "p"};
    for (size_t n = random() % 3; n > 0; --n) stops.push_back(some[random() % std::size(some)]);
    if (!stops.empty()) body["stop"] = stops;
    const bool include = random() % 3 == 0;
    body["include_stop_str_in_output"] = include;
    const bool logprobs = random() % 2 != 0;
    if (logprobs && chat) body["logprobs"] = true, body["top_logprobs"] = random() % 4;
    if (logprobs && !chat) body["logprobs"] = random() % 4;
    const bool ids = random() % 3 == 0;
    if (ids) body["return_token_ids"] = true;
    const size_t n = 1 + random() % 3;
    body["n"] = n;
    size_t prompts = 1;
    const bool echo = !chat && random() % 3 == 0;
    if (!chat) {
      body["prompt"] = Json::array({" Two a", "b"});
      prompts = 2;
      body["echo"] = echo;
    }
    std::vector<Script> scripts;
    for (size_t k = 0; k < n * prompts; ++k) scripts.push_back(random_script(random));

    const Answer whole = play(*f.context, route, body, scripts, random());
    const bool usage = random() % 2 != 0;
    body["stream"] = true;
    if (usage) {
      body["stream_options"] = {{"include_usage", true},
                                {"continuous_usage_stats", random() % 2 == 0}};
    }
    const Answer streamed = play(*f.context, route, body, scripts, random());

    ASSERT_EQ(whole.choices.size(), n * prompts);
    int64_t entries = 0;
    for (size_t k = 0; k < whole.choices.size(); ++k) {
      const Seen &a = whole.choices[k], &b = streamed.choices[k];
      ASSERT_EQ(a, b) << body.dump() << "\n" << a.text << "\n" << b.text;
      Seen expected = expected_of(scripts[k], stops, include);
      if (echo) expected.text = (k < n ? "Two a" : "b") + expected.text;
      ASSERT_EQ(a.text, expected.text) << body.dump();
      ASSERT_EQ(a.finish, expected.finish);
      ASSERT_EQ(a.stop_reason, expected.stop_reason);
      entries += static_cast<int64_t>(a.logprobs.size());
      if (echo && logprobs) entries -= k < n ? 4 : 2;  // the prompt with its BOS
      if (ids && !logprobs) entries += static_cast<int64_t>(a.token_ids.size());
    }
    if (logprobs || ids) {
      ASSERT_EQ(whole.usage["completion_tokens"], entries) << body.dump();
    }
    ASSERT_EQ(whole.usage["prompt_tokens"], chat ? 1 : 6);
    if (usage) {
      ASSERT_EQ(whole.usage, streamed.usage);
    }
    for (const Json& chunk : streamed.chunks) ASSERT_EQ(chunk.contains("usage"), usage);
  }
}

TEST(GenerationStream, EveryCutGivesTheSameAnswer) {
  const Fixture f;
  const struct {
    std::string text, stop, expected;
  } cases[] = {{"stopword", "stopword", ""}, {"?\n", "\n", "?"},
               {"blue", "eel", "blue"},      {"aaab", "aab", "a"},
               {"ababac", "abac", "ab"},     {"x\u00e9\u00e9", "\u00e9", "x"}};
  for (const auto& c : cases) {
    for (unsigned cuts = 0; cuts < 1u << (c.text.size() - 1); ++cuts) {
      PieceTokenizer::Pieces pieces = {{"<end>", Kind::control}};
      Script script;
      for (size_t begin = 0, i = 0; i < c.text.size(); ++i) {
        if (i + 1 < c.text.size() && !(cuts >> i & 1)) continue;
        pieces.emplace_back(c.text.substr(begin, i + 1 - begin), Kind::text);
        script.tokens.push_back(static_cast<Token>(255 + pieces.size()));
        begin = i + 1;
      }
      const PieceTokenizer tokenizer(pieces);
      ContextOptions options;
      options.model_names = {"m"};
      options.max_model_len = 100;
      options.vocab = tokenizer.size();
      options.eos_tokens = {kEnd};
      const auto context = *GenerationContext::create(options, tokenizer, nullptr,
                                                      absl::InvalidArgumentError("none"));
      for (const bool stream : {false, true}) {
        const Json body = {{"prompt", "p"}, {"stop", c.stop}, {"stream", stream}};
        const Answer a = play(*context, api::Route::completions, body, {script}, cuts);
        ASSERT_EQ(a.choices[0].text, c.expected) << c.text << " " << cuts;
        ASSERT_EQ(a.choices[0].finish, "stop");
      }
    }
  }
}

TEST(GenerationStream, UsageAppearsOnlyWhereItWasAskedFor) {
  const Fixture f;
  const Script script{{'a', 'b', 'c', 'd', 'e'}, Finish::length};
  const auto stream = [&](const Json& options) {
    Json body = {{"stream", true}, {"n", 2}, {"max_tokens", 5}, {"stream_options", options}};
    if (options == "absent") body.erase("stream_options");
    return play(*f.context, api::Route::chat, body, {script}, 1);
  };
  const Answer plain = stream("absent");
  for (const Json& options : {Json(nullptr), Json::object(), Json{{"include_usage", false}}})
    EXPECT_EQ(stream(options).chunks, plain.chunks) << options.dump();
  for (const Json& chunk : plain.chunks) EXPECT_FALSE(chunk.contains("usage"));
  const Answer asked = stream({{"include_usage", true}});
  ASSERT_EQ(asked.chunks.size(), plain.chunks.size() + 1);
  for (size_t i = 0; i < plain.chunks.size(); ++i) EXPECT_TRUE(asked.chunks[i]["usage"].is_null());
  EXPECT_EQ(asked.chunks.back()["choices"], Json::array());
  EXPECT_EQ(asked.usage["completion_tokens"], 10);
  EXPECT_EQ(asked.usage["prompt_tokens"], 1);
}

TEST(GenerationStream, EchoScoresThePromptToo) {
  const Fixture f;
  for (const int max_tokens : {0, 1}) {
    for (const bool stream : {false, true}) {
      const Json body = {{"prompt", " Two apples"}, {"echo", true},     {"logprobs", 1},
                         {"temperature", 0},        {"stream", stream}, {"max_tokens", max_tokens}};
      Script script{{}, Finish::length};
      if (max_tokens == 1) script.tokens = {'!'};
      const Answer a = play(*f.context, api::Route::completions, body, {script}, 1);
      const Seen& seen = a.choices[0];
      EXPECT_EQ(seen.text, max_tokens ? "Two apples!" : "Two apples");
      EXPECT_EQ(seen.finish, "length");
      ASSERT_EQ(seen.logprobs.size(), 9u + static_cast<size_t>(max_tokens));
      std::string joined;
      int64_t offset = 0;
      for (size_t i = 0; i < seen.logprobs.size(); ++i) {
        const Json& row = seen.logprobs[i];
        EXPECT_EQ(row[1].is_null(), i == 0) << "only the first has no score";
        EXPECT_EQ(row[3], static_cast<int64_t>(joined.size()));
        EXPECT_GE(row[3].get<int64_t>(), offset);
        offset = row[3];
        joined += row[0].get<std::string>();
      }
      EXPECT_EQ(joined, seen.text);
      EXPECT_EQ(a.usage.is_null(), stream);
      if (!stream) {
        EXPECT_EQ(a.usage["completion_tokens"], max_tokens);
      }
    }
  }
}

TEST(GenerationStream, LoneBytesAreSentAtOnce) {
  const Fixture f;
  for (const Token token : {Token{0x80}, *kTokenizer.find("\xef\xbf\xbd")}) {
    Script script{std::vector<Token>(4000, token), Finish::length};
    script.tokens.push_back('x');
    const Json body = {{"prompt", "p"}, {"stream", true}, {"max_tokens", 4001}};
    const Answer a = play(*f.context, api::Route::completions, body, {script}, 1);
    std::string expected;
    for (int i = 0; i < 4000; ++i) expected += "\ufffd";
    EXPECT_EQ(a.choices[0].text, expected + "x");
    EXPECT_EQ(a.chunks.size(), 4001u) << "one chunk for each token";
  }
}

TEST(GenerationStream, ImpossibleAlternativesAreStillNumbers) {
  const Fixture f;
  const Json body = {{"logprobs", true}, {"top_logprobs", 3}};
  const Answer a = play(*f.context, api::Route::chat, body, {{{'a'}, Finish::length}}, 1);
  const Json& top = a.choices[0].logprobs[0]["top_logprobs"];
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[2]["logprob"], -9999.0);
  EXPECT_EQ(a.choices[0].logprobs[0]["logprob"], -0.5);
}

TEST(GenerationStream, ScoresAreNeverLaterThanTheirText) {
  const Fixture f;
  const Json body = {
      {"logprobs", true}, {"top_logprobs", 2}, {"stream", true}, {"stop", "stopword"}};
  Script script{{*kTokenizer.find("sto"), *kTokenizer.find("pped"), *kTokenizer.find("\xf0\x9f"),
                 *kTokenizer.find("\x98\x80!")},
                Finish::stop};
  const Answer a = play(*f.context, api::Route::chat, body, {script}, 1);
  EXPECT_EQ(a.choices[0].text, "stopped\U0001F600!");
  ASSERT_EQ(a.choices[0].logprobs.size(), 5u) << "the end token has a score too";
  EXPECT_EQ(a.choices[0].logprobs[2]["bytes"], Json({0xf0, 0x9f}));
  size_t text_bytes = 0, scored_bytes = 0;
  for (const Json& chunk : a.chunks) {
    const Json& c = chunk["choices"][0];
    if (!c["logprobs"].is_null())
      for (const Json& row : c["logprobs"]["content"]) scored_bytes += row["bytes"].size();
    text_bytes += c["delta"].value("content", "").size();
    EXPECT_GE(scored_bytes, text_bytes);
  }
}

TEST(GenerationStream, AStopStringInTheLastTokenIsAStopEverywhere) {
  const Fixture f;
  auto prepared =
      f.context->prepare(api::Route::completions, R"({"prompt":"p","stop":"b","max_tokens":2})");
  Generation generation(*f.context, *std::move(prepared), {.id = "x"});
  generation.take_requests(1, Clock::now());
  generation.on_event({.id = 1, .token = 'a'});
  generation.on_event({.id = 1, .token = 'b', .finish = Finish::length});
  EXPECT_TRUE(generation.finished() && generation.drained());
  EXPECT_TRUE(generation.take_cancels().empty()) << "the engine has ended it";
  EXPECT_EQ(generation.finish_reasons(), std::vector<std::string>{"stop"});
  EXPECT_EQ(Json::parse(generation.whole_answer())["choices"][0]["finish_reason"], "stop");
}

TEST(GenerationStream, BestOfReturnsTheBestByMeanScore) {
  const Fixture f;
  auto prepared = f.context->prepare(api::Route::completions,
                                     R"({"prompt":"p","n":1,"best_of":3,"max_tokens":1,"seed":5})");
  Generation generation(*f.context, *std::move(prepared), {.id = "x"});
  const auto requests = generation.take_requests(1, Clock::now());
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].sampling.seed, 5u);
  EXPECT_NE(requests[1].sampling.seed, requests[2].sampling.seed);
  const float scores[] = {-2.0f, -0.5f, -1.0f};
  for (size_t k = 0; k < 3; ++k)
    generation.on_event({.id = 1 + k,
                         .token = static_cast<Token>('a' + k),
                         .logprob = scores[k],
                         .finish = Finish::length});
  const Json whole = Json::parse(generation.whole_answer());
  ASSERT_EQ(whole["choices"].size(), 1u);
  EXPECT_EQ(whole["choices"][0]["text"], "b");
  EXPECT_EQ(whole["choices"][0]["index"], 0);
  EXPECT_EQ(whole["usage"]["completion_tokens"], 3);
}

}  // namespace
}  // namespace millrace::app
