// The size of a body is judged before it is parsed: in one pass, whatever the text, and strictly
// enough that parsing what was let through is cheap.
#include "server/api/json_shape.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "server/api/request.h"

namespace millrace::api {
namespace {

using Json = nlohmann::ordered_json;

std::string repeated(std::string_view piece, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += piece;
  return out;
}

std::string members(size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":1";
  return out;
}

// The field that is blamed; "ok" if the text was let through, "-" if the body as a whole is blamed.
std::string judged(const std::string& text, std::span<const ShapeLimit> fields = {},
                   const Limits& limits = {}) {
  const auto error = check_json_shape(text, limits, fields);
  if (!error) return "ok";
  EXPECT_EQ(error->http_status, 400);
  EXPECT_GT(error->message.size(), 10u);
  return error->param.empty() ? "-" : error->param;
}

TEST(JsonShape, DepthIsBoundedAtItsLimit) {
  const auto nested = [](size_t depth) { return repeated("[", depth) + repeated("]", depth); };
  EXPECT_EQ(judged(nested(64)), "ok");
  EXPECT_EQ(judged(nested(65)), "-");
  EXPECT_EQ(judged("{\"a\":" + nested(63) + "}"), "ok");
  EXPECT_EQ(judged("{\"a\":" + nested(64) + "}"), "a");
  EXPECT_EQ(judged(repeated("[", 1'000'000)), "-");
  EXPECT_EQ(judged(repeated("{\"a\":", 1'000'000)), "a");
  EXPECT_EQ(judged("{\"a\":" + repeated("[],", 100) + "[]}"), "ok") << "siblings are no depth";
  EXPECT_EQ(judged("{\"a\":\"" + repeated("[{", 1000) + "\"}"), "ok") << "braces in a string";
  EXPECT_EQ(judged(R"({"a":"\"[[\\",")" + repeated("{", 1000) + R"(":1})"), "ok");
  EXPECT_EQ(judged(repeated("]", 1000)), "ok") << "not JSON, but small";
}

TEST(JsonShape, ValuesAreBoundedOverTheWholeBody) {
  const Limits limits{.max_json_values = 10};
  EXPECT_EQ(judged("{\"a\":[1,2,3,4,5,6,7,8,9]}", {}, limits), "ok");
  EXPECT_EQ(judged("{\"a\":[1,2,3,4,5,6,7,8,9,0]}", {}, limits), "a");
  EXPECT_EQ(judged("{\"a\":[1,2,3,4],\"b\":[1,2,3,4]}", {}, limits), "ok");
  EXPECT_EQ(judged("{\"a\":[1,2,3,4],\"b\":[1,2,3,4,5]}", {}, limits), "b");
  EXPECT_EQ(judged("{\"a\":[1,2,3,4],\"a\":[1,2,3,4,5]}", {}, limits), "a") << "given again";
  EXPECT_EQ(judged("[1,2,3,4,5,6,7,8,9,0]", {}, limits), "ok");
  EXPECT_EQ(judged("[1,2,3,4,5,6,7,8,9,0,1]", {}, limits), "-") << "no object at all";
  const ShapeLimit apart[] = {{.field = "p", .max_values = 20}};
  EXPECT_EQ(judged("{\"p\":[" + repeated("1,", 18) + "1],\"a\":[1,2]}", apart, limits), "ok");
  EXPECT_EQ(judged("{\"p\":[" + repeated("1,", 19) + "1]}", apart, limits), "p");
  EXPECT_EQ(judged("{\"p\":[" + repeated("1,", 18) + "1],\"p\":[1]}", apart, limits), "p");
}

TEST(JsonShape, MembersOfEveryObjectAreBounded) {
  EXPECT_EQ(judged("{" + members(512) + "}"), "ok");
  EXPECT_EQ(judged("{" + members(513) + "}"), "k512");
  EXPECT_EQ(judged("{\"a\":{\"b\":{" + members(513) + "}}}"), "a");
  EXPECT_EQ(judged("{\"a\":[{" + members(400) + "},{" + members(400) + "}]}"), "ok");
  const ShapeLimit own[] = {{.field = "a", .max_elements = 1000}};
  EXPECT_EQ(judged("{\"a\":{" + members(1000) + "}}", own), "ok") << "has a limit of its own";
  EXPECT_EQ(judged("{\"a\":{" + members(1001) + "}}", own), "a");
  EXPECT_EQ(judged("{\"a\":{\"b\":{" + members(513) + "}}}", own), "a");
}

TEST(JsonShape, ElementsOfAFieldAreItsDirectOnes) {
  const ShapeLimit fields[] = {{.field = "m", .max_elements = 2},
                               {.field = "p", .max_elements = 2, .numbers_are_free = true}};
  EXPECT_EQ(judged(R"({"m":[1,[2,3,4]]})", fields), "ok");
  EXPECT_EQ(judged(R"({"m":[1,2,3]})", fields), "m");
  EXPECT_EQ(judged(R"({"m":["a",{},true]})", fields), "m");
  EXPECT_EQ(judged(R"({"x":{"m":[1,2,3]}})", fields), "ok") << "only at the top";
  EXPECT_EQ(judged(R"({"p":[1,2,-3,4]})", fields), "ok");
  EXPECT_EQ(judged(R"({"p":[[1,2,3],[4]]})", fields), "ok");
  EXPECT_EQ(judged(R"({"p":["a","b","c"]})", fields), "p");
}

TEST(JsonShape, AStringIsMeasuredAsItMayBeOnceRead) {
  const ShapeLimit fields[] = {{.field = "s", .max_string_bytes = 10}};
  const auto body = [](const std::string& text) { return "{\"s\":[\"" + text + "\"]}"; };
  EXPECT_EQ(judged(body(repeated("\\u0041", 10)), fields), "ok") << "ten bytes, written as sixty";
  EXPECT_EQ(judged(body(repeated("a", 66)), fields), "s");
  EXPECT_EQ(judged("{\"t\":\"" + repeated("a", 1000) + "\"}", fields), "ok");
}

TEST(JsonShape, AgreesWithTheParserOnRandomDocuments) {
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    // A random tree, and by counting while it is made, what the scan must find.
    int64_t values = 0, deepest = 1;
    const std::string texts[] = {"", "a", "[{\"", "\\\"", "}\\", "\xc3\xa9", "\n,:"};
    const auto make = [&](auto&& self, int depth) -> Json {
      ++values;
      const unsigned kind = random() % 6;
      if (kind < 4 || depth > 6) {
        if (kind == 0) return nullptr;
        if (kind == 1) return static_cast<int>(random() % 100) - 50;
        return texts[random() % std::size(texts)];
      }
      deepest = std::max<int64_t>(deepest, depth);
      Json out = kind == 4 ? Json::array() : Json::object();
      for (size_t n = random() % 4; n > 0; --n) {
        if (kind == 4)
          out.push_back(self(self, depth + 1));
        else
          out[texts[random() % std::size(texts)] + std::to_string(n)] = self(self, depth + 1);
      }
      return out;
    };
    Json body = Json::object();
    for (size_t n = random() % 5; n > 0; --n) body["f" + std::to_string(n)] = make(make, 2);
    const std::string text = body.dump(static_cast<int>(random() % 3) - 1, ' ', random() % 2 == 0);
    Limits limits{.max_json_depth = static_cast<int>(deepest), .max_json_values = values};
    ASSERT_EQ(judged(text, {}, limits), "ok") << text;
    if (values > 0) {
      limits.max_json_values = values - 1;
      ASSERT_NE(judged(text, {}, limits), "ok") << text;
    }
    if (deepest > 1) {
      limits = {.max_json_depth = static_cast<int>(deepest) - 1, .max_json_values = values};
      ASSERT_NE(judged(text, {}, limits), "ok") << text;
    }
  }
}

TEST(JsonShape, IsTotalOnAnyBytes) {
  std::mt19937 random(11);
  const std::string alphabet = "{}[]\",:\\ \n0-e\xff\x01tu";
  const ShapeLimit fields[] = {
      {.field = "", .max_elements = 1, .max_string_bytes = 1, .max_values = 3}};
  for (int i = 0; i < 50'000; ++i) {
    std::string text;
    for (size_t n = random() % 40; n > 0; --n) text += alphabet[random() % alphabet.size()];
    check_json_shape(text, {}, fields);
    check_json_shape(text, {.max_json_depth = 3, .max_json_values = 4}, {});
  }
}

// What is refused is refused at once, and what passes parses fast: the time of hostile bodies of
// the largest size. The bounds leave room for a slow machine; quadratic work takes minutes.
TEST(JsonShape, HostileBodiesCostLittle) {
  RequestRules rules;
  rules.max_model_len = 4096;
  rules.vocab = 1000;
  std::string objects = "{\"x\":[";
  for (int i = 0; i < 190; ++i) objects += "{" + members(512) + "},";
  const std::pair<const char*, std::string> bodies[] = {
      {"members", "{" + members(700'000) + "}"},
      {"members of a field", "{\"metadata\":{" + members(700'000) + "}}"},
      {"objects", objects + "{}]}"},
      {"list of everything", "[" + repeated("1,", 4'000'000) + "1]"},
      {"one field again and again", "{" + repeated("\"a\":[1,2],", 800'000) + "\"a\":1}"},
      {"depth", "{\"messages\":" + repeated("[", 8'000'000)},
      {"one string", "{\"stop\":\"" + repeated("a", 8'000'000) + "\"}"}};
  for (const auto& [name, body] : bodies) {
    ASSERT_LE(body.size(), rules.limits.max_body_bytes + (2 << 20)) << name;
    const auto start = std::chrono::steady_clock::now();
    const auto request = parse_generation_request(Route::chat, body, rules);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_FALSE(request.ok()) << name;
    EXPECT_LT(seconds.count(), 2.0) << name;
    RecordProperty(name, std::to_string(seconds.count() * 1e3) + " ms");
  }
}

}  // namespace
}  // namespace millrace::api
