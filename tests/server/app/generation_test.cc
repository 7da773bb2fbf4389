// Answers from scripted tokens: what a client sees must not depend on how the text is cut into
// tokens, nor on whether it streams.
#include "server/app/generation.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/server/app/byte_tokenizer.h"

namespace millrace::app {
namespace {

using Json = nlohmann::ordered_json;

const ByteTokenizer kTokenizer;

std::unique_ptr<GenerationContext> make_context() {
  ContextOptions options;
  options.model_names = {"m"};
  options.max_model_len = 4096;
  options.vocab = ByteTokenizer::kEnd + 1;
  options.eos_tokens = {ByteTokenizer::kEnd};
  return *GenerationContext::create(options, kTokenizer, nullptr,
                                    absl::InvalidArgumentError("no chat template"));
}

// What one choice gave.
struct Choice {
  std::string text;
  Json finish, stop_reason;
  Json logprobs = Json::array();
};
struct Answer {
  std::vector<Choice> choices;
  Json usage;
  bool done = false;
};

Json logprob_rows(const Json& legacy) {
  Json rows = Json::array();
  if (legacy.is_null()) return rows;
  for (size_t i = 0; i < legacy["tokens"].size(); ++i)
    rows.push_back({legacy["tokens"][i], legacy["token_logprobs"][i], legacy["text_offset"][i]});
  return rows;
}

// Plays `script` (bytes, then a finish) to every choice and reads the answer back.
Answer play(const GenerationContext& context, Json body, const std::string& script, Finish finish,
            bool stream) {
  body["prompt"] = "p";
  body["stream"] = stream;
  if (stream) body["stream_options"] = {{"include_usage", true}};
  auto prepared = context.prepare(api::Route::completions, body.dump());
  EXPECT_TRUE(prepared.ok()) << prepared.error().message;
  Generation generation(context, *std::move(prepared), {.id = "x"});
  const std::vector<Request> requests = generation.take_requests(10, Clock::now());
  std::string output;
  for (size_t i = 0; i <= script.size(); ++i) {
    for (const Request& r : requests) {
      TokenEvent event{.id = r.id, .cached_tokens = i == 0 ? 0 : -1};
      event.token = i < script.size() ? static_cast<unsigned char>(script[i]) : ByteTokenizer::kEnd;
      event.logprob = -0.25f * static_cast<float>(i % 4);
      if (i + 1 == script.size() && finish == Finish::length) event.finish = finish;
      if (i == script.size()) event.finish = Finish::stop;
      if (i == script.size() && finish == Finish::length) continue;
      generation.on_event(event);
      output += generation.take_output();
    }
  }
  Answer answer;
  answer.choices.resize(requests.size());
  EXPECT_TRUE(generation.finished());
  EXPECT_FALSE(generation.error().has_value());
  if (!stream) {
    const Json whole = Json::parse(generation.whole_answer());
    for (size_t k = 0; k < requests.size(); ++k) {
      const Json& c = whole["choices"][k];
      answer.choices[k] = {c["text"], c["finish_reason"], c["stop_reason"],
                           logprob_rows(c["logprobs"])};
    }
    answer.usage = whole["usage"];
    return answer;
  }
  for (size_t begin = 0, end; (end = output.find("\n\n", begin)) != std::string::npos;
       begin = end + 2) {
    const std::string data = output.substr(begin + 6, end - begin - 6);
    EXPECT_FALSE(answer.done);
    answer.done = data == "[DONE]";
    if (answer.done) continue;
    const Json chunk = Json::parse(data);
    if (chunk["choices"].empty()) answer.usage = chunk["usage"];
    for (const Json& c : chunk["choices"]) {
      Choice& choice = answer.choices[c["index"]];
      choice.text += c["text"].get<std::string>();
      for (const Json& row : logprob_rows(c["logprobs"])) choice.logprobs.push_back(row);
      if (c["finish_reason"].is_null()) continue;
      choice.finish = c["finish_reason"];
      choice.stop_reason = c["stop_reason"];
    }
  }
  EXPECT_TRUE(answer.done);
  return answer;
}

TEST(Generation, StopStringsEndTheTextExactly) {
  const auto context = make_context();
  const struct {
    const char* script;
    const char* stop;
    const char* text;
  } cases[] = {{"stopword", "stopword", ""}, {"?\n", "\n", "?"}, {"blue", "eel", "blue"},
               {"aaab", "aab", "a"},         {"abc", "bc", "a"}, {"xyz", "q", "xyz"}};
  for (const auto& c : cases) {
    for (const bool stream : {false, true}) {
      const Answer a = play(*context, {{"stop", c.stop}}, c.script, Finish::stop, stream);
      EXPECT_EQ(a.choices[0].text, c.text) << c.script;
      EXPECT_EQ(a.choices[0].finish, "stop");
      const bool matched = std::string(c.text) != c.script;
      EXPECT_EQ(a.choices[0].stop_reason, matched ? Json(c.stop) : Json(nullptr));
    }
  }
}

TEST(Generation, StopStringsWaitForTheMinimum) {
  const auto context = make_context();
  const Answer a = play(*context, {{"stop", "b"}, {"min_tokens", 3}, {"max_tokens", 16}}, "abcabc",
                        Finish::stop, false);
  EXPECT_EQ(a.choices[0].text, "abca");
}

TEST(Generation, CutCharactersAreReplacedAndNothingBreaks) {
  const auto context = make_context();
  const struct {
    std::string script, text;
  } cases[] = {{"\xe4\xbd", "\ufffd"},
               {"\xc0\x80", "\ufffd\ufffd"},
               {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},
               {"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"},
               {"\xc3\xa9\x80\xf0\x9f\x98\x80", "\u00e9\ufffd\U0001F600"}};
  for (const auto& c : cases) {
    for (const bool stream : {false, true}) {
      const Answer a =
          play(*context, {{"logprobs", 0}, {"max_tokens", 16}}, c.script, Finish::length, stream);
      EXPECT_EQ(a.choices[0].text, c.text);
      EXPECT_EQ(a.choices[0].finish, "length");
      EXPECT_EQ(a.choices[0].logprobs.size(), c.script.size());
    }
  }
}

TEST(Generation, UsageCountsEveryChoiceAndThePromptOnce) {
  const auto context = make_context();
  for (const bool stream : {false, true}) {
    const Answer a = play(*context, {{"n", 2}, {"max_tokens", 5}}, "abcde", Finish::length, stream);
    EXPECT_EQ(a.usage["completion_tokens"], 10);
    EXPECT_EQ(a.usage["prompt_tokens"], 1);
  }
}

TEST(Generation, StreamEqualsWholeForAnyScript) {
  const auto context = make_context();
  std::mt19937 random(5);
  const std::string pieces[] = {"a", "ab", "\xc3\xa9", "\xf0\x9f\x98\x80", "\xff", "stop", "\n"};
  for (int i = 0; i < 400; ++i) {
    std::string script;
    for (size_t n = 1 + random() % 10; n > 0; --n) script += pieces[random() % std::size(pieces)];
    Json body = {{"max_tokens", 200}};
    if (random() % 2) body["stop"] = {"stop", "b\n", "aa"};
    if (random() % 2) body["logprobs"] = 1;
    if (random() % 3 == 0) body["n"] = 2;
    if (random() % 4 == 0) body["echo"] = true;
    if (random() % 4 == 0) body["include_stop_str_in_output"] = true;
    body.erase(body.contains("echo") ? "logprobs" : "");
    const Finish finish = random() % 2 ? Finish::stop : Finish::length;
    const Answer whole = play(*context, body, script, finish, false);
    const Answer streamed = play(*context, body, script, finish, true);
    ASSERT_EQ(whole.choices.size(), streamed.choices.size());
    for (size_t k = 0; k < whole.choices.size(); ++k) {
      EXPECT_EQ(whole.choices[k].text, streamed.choices[k].text) << body.dump();
      EXPECT_EQ(whole.choices[k].finish, streamed.choices[k].finish);
      EXPECT_EQ(whole.choices[k].stop_reason, streamed.choices[k].stop_reason);
      EXPECT_EQ(whole.choices[k].logprobs, streamed.choices[k].logprobs);
    }
    EXPECT_EQ(whole.usage, streamed.usage);
  }
}

TEST(Generation, AnErrorBeforeTheFirstByteIsNoStream) {
  const auto context = make_context();
  auto prepared = context->prepare(api::Route::completions, R"({"prompt":"p","stream":true})");
  Generation generation(*context, *std::move(prepared), {.id = "x"});
  generation.take_requests(1, Clock::now());
  generation.on_event({.id = 1, .finish = Finish::error, .error = "boom"});
  EXPECT_EQ(generation.take_output(), "");
  ASSERT_TRUE(generation.error().has_value());
  EXPECT_EQ(generation.error()->http_status, 500);
}

TEST(Generation, AnErrorInAStreamIsItsLastEvent) {
  const auto context = make_context();
  auto prepared =
      context->prepare(api::Route::completions, R"({"prompt":"p","stream":true,"n":2})");
  Generation generation(*context, *std::move(prepared), {.id = "x"});
  generation.take_requests(1, Clock::now());
  generation.on_event({.id = 1, .token = 'a'});
  generation.on_event({.id = 2, .finish = Finish::deadline});
  const std::string output = generation.take_output();
  EXPECT_NE(output.find("\"error\""), std::string::npos);
  EXPECT_EQ(output.find("[DONE]"), std::string::npos);
  EXPECT_EQ(generation.take_cancels(), std::vector<RequestId>{1});
}

TEST(GenerationContext, RefusesWhatCannotFitOrIsUnknown) {
  const auto context = make_context();
  const auto code = [&](const std::string& body) {
    const auto prepared = context->prepare(api::Route::completions, body);
    return prepared.ok() ? std::string("ok")
                         : std::to_string(prepared.error().http_status) + prepared.error().code;
  };
  EXPECT_EQ(code(R"({"prompt":")" + std::string(4080, 'a') + "\"}"), "ok");
  EXPECT_EQ(code(R"({"prompt":")" + std::string(4080, 'a') + R"(","max_tokens":17})"),
            "400context_length_exceeded");
  EXPECT_EQ(code(R"({"prompt":")" + std::string(4096, 'a') + "\"}"), "400context_length_exceeded");
  EXPECT_EQ(code(R"({"prompt":")" + std::string(5000, 'a') + R"(","truncate_prompt_tokens":-1})"),
            "ok");
  EXPECT_EQ(code(R"({"prompt":""})").substr(0, 3), "400");
  EXPECT_EQ(code(R"({"prompt":"a","model":"other"})").substr(0, 3), "404");
  const auto chat =
      context->prepare(api::Route::chat, R"({"messages":[{"role":"user","content":"x"}]})");
  EXPECT_NE(chat.error().message.find("no chat template"), std::string::npos);
}

}  // namespace
}  // namespace millrace::app
