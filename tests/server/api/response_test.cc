#include "server/api/response.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "server/api/json_text.h"

namespace millrace::api {
namespace {

using Json = nlohmann::ordered_json;

std::string random_bytes(std::mt19937& random) {
  static const std::string pieces[] = {"a",
                                       "\"",
                                       "\\",
                                       "\n",
                                       "\x01",
                                       "\x7f",
                                       "\xc3\xa9",
                                       "\xf0\x9f\x98\x80",
                                       "\xff",
                                       "\xe4\xbd",
                                       "\xed\xa0\x80",
                                       "\xc0\x80",
                                       "\xf4\x90\x80\x80",
                                       "/",
                                       "\t"};
  std::string out;
  for (size_t n = random() % 12; n > 0; --n) out += pieces[random() % std::size(pieces)];
  return out;
}

TEST(JsonText, IsWhatTheLibraryWritesForAnyBytes) {
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const std::string bytes = random_bytes(random);
    std::string ours;
    append_json_string(ours, bytes);
    const Json parsed = Json::parse(ours, nullptr, false);
    ASSERT_FALSE(parsed.is_discarded()) << ours;
    const std::string expected = Json(bytes).dump(-1, ' ', false, Json::error_handler_t::replace);
    ASSERT_EQ(parsed, Json::parse(expected)) << ours;
  }
}

TEST(JsonText, ScoresAreAlwaysNumbers) {
  for (const float score : {0.0f, -0.1f, -1e-30f, -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(), -3.25f}) {
    std::string text;
    append_json_score(text, score);
    const Json parsed = Json::parse(text, nullptr, false);
    ASSERT_TRUE(parsed.is_number()) << text;
    if (std::isfinite(score))
      EXPECT_EQ(parsed.get<float>(), score);
    else
      EXPECT_EQ(parsed.get<float>(), -9999.0f);
  }
}

AnswerHead head(Route route) { return {route, "id-\"1", 17, "m\\odel", "fp_1"}; }

Json event(const std::string& text) {
  EXPECT_TRUE(text.starts_with("data: ") && text.ends_with("\n\n")) << text;
  const Json parsed = Json::parse(text.substr(6), nullptr, false);
  EXPECT_FALSE(parsed.is_discarded()) << text;
  return parsed;
}

LogprobEntry entry(Token id, std::string bytes, float logprob) {
  LogprobEntry e{.chosen = {id, bytes, logprob}};
  e.top = {{id, std::move(bytes), logprob}, {id + 1, "b", -3.0f}};
  return e;
}

TEST(ChunkWriter, WritesStrictJsonForAnyDelta) {
  std::mt19937 random(2);
  for (int i = 0; i < 3000; ++i) {
    const Route route = i % 2 ? Route::chat : Route::completions;
    const ChunkWriter writer(head(route), i % 3, {.logprobs = i % 5 == 0, .token_ids = i % 7 == 0});
    Delta delta{.text = random_bytes(random), .token_ids = {1, 2}};
    if (i % 5 == 0) delta.logprobs = {entry(3, random_bytes(random), -0.5f)};
    if (i % 4 == 0) delta.finish_reason = "stop";
    std::string out;
    writer.write(out, delta, nullptr);
    const Json chunk = event(out);
    EXPECT_EQ(chunk["id"], "id-\"1");
    EXPECT_EQ(chunk["model"], "m\\odel");
    const Json& choice = chunk["choices"][0];
    EXPECT_EQ(choice["index"], i % 3);
    EXPECT_EQ(choice["finish_reason"], i % 4 == 0 ? Json("stop") : Json(nullptr));
    EXPECT_FALSE(chunk.contains("usage"));
  }
}

TEST(ChunkWriter, RoleUsageAndErrors) {
  const ChunkWriter writer(head(Route::chat), 0, {.usage_null = true});
  std::string out;
  writer.write_role(out, nullptr, nullptr);
  const Json role = event(out);
  EXPECT_EQ(role["choices"][0]["delta"]["role"], "assistant");
  EXPECT_TRUE(role.contains("usage") && role["usage"].is_null());
  out.clear();
  write_usage_chunk(out, head(Route::chat), {.prompt_tokens = 4, .completion_tokens = 10});
  const Json usage = event(out);
  EXPECT_EQ(usage["choices"], Json::array());
  EXPECT_EQ(usage["usage"]["total_tokens"], 14);
}

TEST(WholeAnswer, HasTheShapeOfEachRoute) {
  const std::vector<Token> ids = {5, 6};
  WholeChoice choice;
  choice.delta.text = "hi";
  choice.delta.finish_reason = "stop";
  choice.delta.stop_reason = "\"x\"";
  choice.delta.logprobs = {entry(3, "\xe4\xbd", -0.5f), entry(4, "b", -1.0f)};
  choice.prompt_token_ids = &ids;
  const WholeChoice choices[] = {choice};
  const Usage usage{.prompt_tokens = 2, .completion_tokens = 2, .cached_tokens = 0};
  const Json chat =
      Json::parse(whole_answer_json(head(Route::chat), {.logprobs = true}, choices, usage));
  EXPECT_EQ(chat["choices"][0]["message"]["content"], "hi");
  EXPECT_EQ(chat["choices"][0]["stop_reason"], "x");
  EXPECT_EQ(chat["choices"][0]["logprobs"]["content"][0]["bytes"], Json({0xe4, 0xbd}));
  EXPECT_EQ(chat["choices"][0]["logprobs"]["content"][0]["token"], "\xef\xbf\xbd");
  EXPECT_EQ(chat["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  const Json text =
      Json::parse(whole_answer_json(head(Route::completions), {.logprobs = true}, choices, usage));
  EXPECT_EQ(text["choices"][0]["text"], "hi");
  EXPECT_EQ(text["choices"][0]["logprobs"]["token_logprobs"], Json({-0.5, -1.0}));
  EXPECT_EQ(text["choices"][0]["logprobs"]["top_logprobs"][1]["b"], -1.0);
  EXPECT_EQ(text["choices"][0]["prompt_token_ids"], Json({5, 6}));
}

}  // namespace
}  // namespace millrace::api
