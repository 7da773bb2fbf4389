#include "server/api/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace millrace::api {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

RequestRules rules() {
  RequestRules r;
  r.max_model_len = 4096;
  r.vocab = 1000;
  return r;
}

Json base(Route route) {
  if (route == Route::completions) return {{"prompt", "a"}};
  return {{"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}};
}

Result<GenerationRequest> parse(Route route, const Json& extra) {
  Json body = base(route);
  for (const auto& [key, value] : extra.items()) body[key] = value;
  return parse_generation_request(route, body.dump(), rules());
}

// The field that an error blames; empty if the request was taken.
std::string blamed(Route route, const Json& extra) {
  const auto request = parse(route, extra);
  if (request.ok()) return "";
  EXPECT_GE(request.error().http_status, 400);
  EXPECT_GT(request.error().message.size(), 10u);
  return request.error().param;
}

const char* const kBothFields[] = {"temperature",
                                   "top_p",
                                   "top_k",
                                   "min_p",
                                   "typical_p",
                                   "n",
                                   "best_of",
                                   "stop",
                                   "seed",
                                   "max_tokens",
                                   "min_tokens",
                                   "logprobs",
                                   "logit_bias",
                                   "response_format",
                                   "stream_options",
                                   "user",
                                   "presence_penalty",
                                   "ignore_eos",
                                   "stream",
                                   "stop_token_ids",
                                   "bad_words",
                                   "priority",
                                   "timeout_ms",
                                   "allowed_token_ids",
                                   "cache_salt",
                                   "request_id",
                                   "prompt_logprobs",
                                   "frequency_penalty"};

const char* const kChatFields[] = {"tools",
                                   "tool_choice",
                                   "functions",
                                   "function_call",
                                   "top_logprobs",
                                   "chat_template",
                                   "chat_template_kwargs",
                                   "max_completion_tokens",
                                   "add_generation_prompt",
                                   "continue_final_message",
                                   "content_special_tokens",
                                   "reasoning_effort"};

TEST(Request, NullIsAbsentForEveryField) {
  for (const Route route : {Route::chat, Route::completions}) {
    for (const char* field : kBothFields) EXPECT_EQ(blamed(route, {{field, nullptr}}), "") << field;
  }
  for (const char* field : kChatFields)
    EXPECT_EQ(blamed(Route::chat, {{field, nullptr}}), "") << field;
  for (const char* field : {"suffix", "echo"})
    EXPECT_EQ(blamed(Route::completions, {{field, nullptr}}), "") << field;
}

TEST(Request, AWrongTypeNamesItsField) {
  // A string with digits is legal for none of these, nor is a list of lists.
  for (const Route route : {Route::chat, Route::completions}) {
    for (const char* field : kBothFields) {
      const std::string name = field;
      const bool text =
          name == "stop" || name == "user" || name == "cache_salt" || name == "request_id";
      const Json wrong = text ? Json(5) : Json("warm");
      EXPECT_THAT(blamed(route, {{field, wrong}}), HasSubstr(field)) << field;
    }
  }
}

TEST(Request, EveryWrongTypeIsRefusedUnderTheFieldsOwnName) {
  const Json values[] = {true, -7.5, "warm", Json::array({nullptr}), {{"x", nullptr}}};
  for (const Route route : {Route::chat, Route::completions}) {
    std::vector<std::string> fields(std::begin(kBothFields), std::end(kBothFields));
    for (const char* name : {"structured_outputs", "guided_json", "guided_regex", "guided_choice",
                             "guided_grammar", "truncate_prompt_tokens", "ttft_slo_ms", "model"})
      fields.emplace_back(name);
    if (route == Route::chat)
      fields.insert(fields.end(), std::begin(kChatFields), std::end(kChatFields));
    else
      fields.insert(fields.end(), {"suffix", "echo", "prompt"});
    for (const std::string& field : fields) {
      int refused = 0;
      for (const Json& value : values) {
        const std::string param = blamed(route, {{field, value}});
        if (param.empty()) continue;
        ++refused;
        EXPECT_TRUE(param.starts_with(field) || (param == "min_tokens" && field == "max_tokens"))
            << field << " " << value << " blames " << param;
      }
      EXPECT_GE(refused, 3) << field;
    }
  }
}

TEST(Request, FieldsOfTheOtherRouteAreUnknown) {
  EXPECT_EQ(blamed(Route::completions, {{"messages", 5}, {"tools", 5}}), "");
  EXPECT_EQ(blamed(Route::chat, {{"prompt", 5}, {"suffix", 5}}), "");
}

TEST(Request, WhatTheOtherRouteKnowsIsRefusedWhereItWouldChangeTheAnswer) {
  EXPECT_EQ(blamed(Route::chat, {{"echo", true}}), "echo");
  EXPECT_EQ(blamed(Route::chat, {{"echo", 5}}), "echo");
  EXPECT_EQ(blamed(Route::chat, {{"echo", false}}), "");
  EXPECT_EQ(blamed(Route::completions, {{"top_logprobs", 2}}), "top_logprobs");
  EXPECT_EQ(blamed(Route::completions, {{"top_logprobs", 1000000000}}), "top_logprobs");
  EXPECT_EQ(blamed(Route::completions, {{"top_logprobs", 0}}), "");
  EXPECT_EQ(blamed(Route::completions, {{"top_logprobs", nullptr}}), "");
}

TEST(Request, AStopStringIsMeasuredOnceRead) {
  std::string escaped;
  for (int i = 0; i < 300; ++i) escaped += "\\u4e2d";  // 900 bytes, written as 1800
  const auto parsed = [&](const std::string& stop) {
    return parse_generation_request(Route::completions,
                                    "{\"prompt\":\"a\",\"stop\":[\"" + stop + "\"]}", rules());
  };
  ASSERT_TRUE(parsed(escaped).ok()) << parsed(escaped).error().message;
  EXPECT_EQ(parsed(escaped)->stop[0].size(), 900u);
  EXPECT_EQ(parsed(std::string(1024, 'a'))->stop[0].size(), 1024u);
  EXPECT_EQ(parsed(std::string(1025, 'a')).error().param, "stop");
}

TEST(Request, UnknownFieldsAreIgnored) {
  EXPECT_EQ(blamed(Route::chat, {{"no_such_field", {1, 2, 3}}, {"store", true}}), "");
}

TEST(Request, RangesAndTheirEdges) {
  const struct {
    const char* field;
    Json value;
    bool legal;
  } cases[] = {{"top_p", 0, true},
               {"top_p", 1e-9, true},
               {"top_p", 1.0000001, false},
               {"top_p", -0.1, false},
               {"top_k", -1, true},
               {"top_k", 0, true},
               {"top_k", 1001, true},
               {"top_k", -2, false},
               {"min_p", 0, true},
               {"min_p", 1, true},
               {"min_p", 1.5, false},
               {"temperature", 0, true},
               {"temperature", 2, true},
               {"temperature", 2.1, false},
               {"temperature", 999999, false},
               {"n", 1, true},
               {"n", 0, false},
               {"n", 5000000, false},
               {"n", 2.5, false},
               {"n", 2.0, true},
               {"max_tokens", 4096, true},
               {"max_tokens", 4097, false},
               {"max_tokens", -1, false},
               {"logit_bias", {{"999", 100}}, true},
               {"logit_bias", {{"1000", 1}}, false},
               {"logit_bias", {{"x", 1}}, false},
               {"logit_bias", {{"5", 101}}, false},
               {"stop", {"a", "b", "c", "d"}, true},
               {"stop", {"a", "b", "c", "d", "e"}, false},
               {"seed", INT64_MIN, true},
               {"stop_token_ids", {1000}, false},
               {"best_of", 1000000, false},
               {"prompt_logprobs", 21, false},
               {"prompt_logprobs", -2, false}};
  for (const auto& c : cases)
    EXPECT_EQ(blamed(Route::chat, {{c.field, c.value}}), c.legal ? "" : c.field)
        << c.field << " " << c.value.dump();
}

TEST(Request, FieldsThatNeedOneAnother) {
  EXPECT_EQ(blamed(Route::chat, {{"top_logprobs", 2}}), "top_logprobs");
  EXPECT_EQ(blamed(Route::chat, {{"top_logprobs", 2}, {"logprobs", true}}), "");
  EXPECT_EQ(blamed(Route::chat, {{"top_logprobs", 1000000000}, {"logprobs", true}}),
            "top_logprobs");
  EXPECT_EQ(blamed(Route::chat, {{"stream_options", Json::object()}}), "stream_options");
  EXPECT_EQ(blamed(Route::chat, {{"stream_options", Json::object()}, {"stream", true}}), "");
  EXPECT_EQ(blamed(Route::chat, {{"min_tokens", 9}, {"max_tokens", 8}}), "min_tokens");
  EXPECT_EQ(blamed(Route::chat, {{"n", 3}, {"best_of", 2}}), "best_of");
  EXPECT_EQ(blamed(Route::chat, {{"n", 1}, {"best_of", 2}, {"stream", true}}), "best_of");
}

TEST(Request, UsageInAStreamIsOnlyWhatWasAskedFor) {
  const auto usage = [](const Json& options) {
    return parse(Route::chat, {{"stream", true}, {"stream_options", options}})->include_usage;
  };
  EXPECT_FALSE(usage(nullptr));
  EXPECT_FALSE(usage(Json::object()));
  EXPECT_FALSE(usage({{"include_usage", false}}));
  EXPECT_TRUE(usage({{"include_usage", true}}));
}

TEST(Request, LegacyLogprobsZeroScoresTheChosenToken) {
  EXPECT_EQ(parse(Route::completions, {{"logprobs", 0}})->logprobs, 0);
  EXPECT_FALSE(parse(Route::chat, {{"logprobs", false}})->logprobs.has_value());
  EXPECT_EQ(parse(Route::chat, {{"logprobs", true}, {"top_logprobs", 3}})->logprobs, 3);
}

TEST(Request, PromptsComeAsTextIdsOrListsOfEither) {
  const auto count = [](const Json& prompt) {
    const auto request = parse(Route::completions, {{"prompt", prompt}});
    return request.ok() ? static_cast<int>(request->prompts.size()) : -1;
  };
  EXPECT_EQ(count("a"), 1);
  EXPECT_EQ(count({1, 2, 3}), 1);
  EXPECT_EQ(count({"a", "b"}), 2);
  EXPECT_EQ(count({{1, 2}, {3}}), 2);
  EXPECT_EQ(count({1, -1}), -1);
  EXPECT_EQ(count({1, 1000}), -1);
  EXPECT_EQ(count(Json::array()), -1);
  EXPECT_EQ(count({{1, 2}, Json::array()}), -1);
  EXPECT_EQ(count(std::vector<std::string>(100'000, "a")), -1);
}

TEST(Request, WhatIsNotSupportedIsRefusedNotIgnored) {
  EXPECT_EQ(blamed(Route::chat, {{"response_format", {{"type", "json_object"}}}}),
            "response_format");
  EXPECT_EQ(blamed(Route::chat, {{"response_format", {{"type", "text"}}}}), "");
  EXPECT_EQ(blamed(Route::chat, {{"tool_choice", "required"}}), "tool_choice");
  EXPECT_EQ(blamed(Route::chat, {{"structured_outputs", {{"regex", "a"}}}}), "structured_outputs");
  EXPECT_EQ(blamed(Route::completions, {{"suffix", "x"}}), "suffix");
  EXPECT_EQ(blamed(Route::chat, {{"chat_template", "{{ 1 }}"}}), "chat_template");
  for (const char* key : {"chat_template", "messages", "tools", "bos_token"})
    EXPECT_EQ(blamed(Route::chat, {{"chat_template_kwargs", {{key, "x"}}}}),
              "chat_template_kwargs");
  const Json image = {{"type", "image_url"}, {"image_url", {{"url", "http://127.0.0.1/x"}}}};
  EXPECT_THAT(blamed(Route::chat, {{"messages", {{{"role", "user"}, {"content", {image}}}}}}),
              HasSubstr("content[0]"));
}

TEST(Request, MessagesAreCheckedAndShaped) {
  const auto one = [](const Json& message) {
    return parse(Route::chat, {{"messages", Json::array({message})}});
  };
  EXPECT_FALSE(one({{"role", "king"}, {"content", "x"}}).ok());
  EXPECT_FALSE(one({{"content", "x"}}).ok());
  EXPECT_FALSE(one({{"role", "user"}}).ok());
  EXPECT_FALSE(one("hi").ok());
  EXPECT_FALSE(parse(Route::chat, {{"messages", Json::array()}}).ok());
  EXPECT_EQ(one({{"role", "developer"}, {"content", "x"}})->messages[0]["role"], "system");
  const Json parts = {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}};
  EXPECT_EQ(one({{"role", "user"}, {"content", parts}})->messages[0]["content"], "a\nb");
}

TEST(Request, ToolArgumentsTakeTheFormThatTheTemplateWants) {
  const auto arguments = [](const Json& given, bool objects) -> Json {
    Json body = base(Route::chat);
    body["messages"].push_back(
        {{"role", "assistant"},
         {"tool_calls", {{{"id", "1"}, {"function", {{"name", "f"}, {"arguments", given}}}}}}});
    RequestRules r = rules();
    r.tool_arguments_as_objects = objects;
    const auto request = parse_generation_request(Route::chat, body.dump(), r);
    if (!request.ok()) return "error: " + request.error().param;
    return request->messages[1]["tool_calls"][0]["function"]["arguments"];
  };
  EXPECT_EQ(arguments("{\"city\":\"Oslo\"}", true), Json({{"city", "Oslo"}}));
  EXPECT_EQ(arguments("{\"city\":\"Oslo\"}", false), "{\"city\":\"Oslo\"}");
  EXPECT_EQ(arguments({{"b", 1}, {"a", 2}}, false), "{\"b\":1,\"a\":2}");
  EXPECT_EQ(arguments("", true), Json::object());
  for (const char* bad : {"null", "[1]", "{oops"})
    EXPECT_THAT(arguments(bad, true).get<std::string>(), HasSubstr("messages[1].tool_calls[0]"));
}

TEST(Request, ContinuationNeedsAnAssistantAtTheEnd) {
  const Json prefilled = Json::array(
      {{{"role", "user"}, {"content", "Count"}}, {{"role", "assistant"}, {"content", "1, 2,"}}});
  const auto check = [&](const Json& extra) {
    Json all = extra;
    if (!all.contains("messages")) all["messages"] = prefilled;
    all["continue_final_message"] = true;
    return blamed(Route::chat, all);
  };
  EXPECT_EQ(check({{"add_generation_prompt", false}}), "");
  EXPECT_EQ(check(Json::object()), "");
  EXPECT_EQ(check({{"add_generation_prompt", true}}), "continue_final_message");
  EXPECT_EQ(check({{"messages", base(Route::chat)["messages"]}}), "continue_final_message");
}

TEST(Request, HostileBodiesEndInAnError) {
  const auto fails = [](const std::string& body) {
    const auto request = parse_generation_request(Route::chat, body, rules());
    return !request.ok() && request.error().http_status < 500;
  };
  EXPECT_TRUE(fails(""));
  EXPECT_TRUE(fails("{"));
  EXPECT_TRUE(fails("[1]"));
  EXPECT_TRUE(fails("null"));
  EXPECT_TRUE(fails("{\"messages\":" + std::string(100'000, '[')));
  EXPECT_TRUE(fails("{\"messages\":[],\"temperature\":1e400}"));
  EXPECT_TRUE(fails("{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}"));
  std::string many = "{\"messages\":[";
  for (int i = 0; i < 100'000; ++i) many += "{\"role\":\"user\",\"content\":\"x\"},";
  EXPECT_TRUE(fails(many + "{}]}"));
  std::string stops = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stop\":[\"a\"";
  for (int i = 0; i < 500'000; ++i) stops += ",\"a\"";
  EXPECT_TRUE(fails(stops + "]}"));
  const auto large = parse_generation_request(Route::chat, std::string(9 << 20, ' '), rules());
  EXPECT_EQ(large.error().http_status, 413);
}

}  // namespace
}  // namespace millrace::api
