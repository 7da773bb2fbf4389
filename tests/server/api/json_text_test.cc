#include "server/api/json_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "server/api/error.h"

namespace millrace::api {
namespace {

using Json = nlohmann::ordered_json;

TEST(JsonText, AnyBytesBecomeAStrictString) {
  std::mt19937 random(3);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes;
    for (size_t n = random() % 24; n > 0; --n)
      bytes += static_cast<char>(random() % 3 ? random() % 128 : random() % 256);
    std::string ours;
    append_json_string(ours, bytes);
    const Json parsed = Json::parse(ours, nullptr, false);
    ASSERT_TRUE(parsed.is_string()) << ours;
    const std::string expected = Json(bytes).dump(-1, ' ', false, Json::error_handler_t::replace);
    ASSERT_EQ(parsed, Json::parse(expected)) << ours;
    ASSERT_EQ(ours.find('\n'), std::string::npos) << "an event is one line";
  }
}

// Independent of the library's own replacement: the counts that the Unicode standard recommends.
TEST(JsonText, EachMaximalIllFormedPartIsOneReplacement) {
  const struct {
    std::string bytes, text;
  } cases[] = {{"\xe4\xbd", "\ufffd"},
               {"\xe4\xbd x", "\ufffd x"},
               {"\xc0\x80", "\ufffd\ufffd"},
               {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},
               {"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"},
               {"\xf0\x9f\x98", "\ufffd"},
               {"\xf0\x9f\x98\x80", "\U0001F600"},
               {"\xf0\x80\x80\x80", "\ufffd\ufffd\ufffd\ufffd"},
               {"\xe0\xa0\x80", "\u0800"},
               {"\xef\xbf\xbd", "\ufffd"},
               {std::string("\0", 1), std::string("\0", 1)}};
  for (const auto& c : cases) {
    std::string ours;
    append_json_string(ours, c.bytes);
    EXPECT_EQ(Json::parse(ours).get<std::string>(), c.text) << ours;
  }
}

TEST(JsonText, ScoresReadBackAsTheSameFloat) {
  std::mt19937 random(4);
  for (int i = 0; i < 50'000; ++i) {
    const uint32_t bits = random();
    float score = 0.0f;
    std::memcpy(&score, &bits, sizeof(score));
    std::string text;
    append_json_score(text, score);
    const Json parsed = Json::parse(text, nullptr, false);
    ASSERT_TRUE(parsed.is_number_float()) << text;
    const bool kept = std::isfinite(score) && score > -9999.0f;
    ASSERT_EQ(parsed.get<float>(), kept ? score : -9999.0f) << text;
  }
  std::string text;
  append_json_score(text, std::numeric_limits<float>::infinity());
  EXPECT_EQ(text, "-9999.0");
}

TEST(ErrorJson, IsStrictForAnyMessage) {
  const Error error{.param = "a\"b", .message = "bad \xff\n"};
  const Json parsed = Json::parse(error_json(error));
  EXPECT_EQ(parsed["error"]["param"], "a\"b");
  EXPECT_EQ(parsed["error"]["message"], "bad \ufffd\n");
  EXPECT_TRUE(parsed["error"]["code"].is_null());
}

TEST(ErrorFromStatus, HasAnHttpStatusForEachCode) {
  EXPECT_EQ(error_from_status(absl::InvalidArgumentError("x")).http_status, 400);
  EXPECT_EQ(error_from_status(absl::NotFoundError("x")).http_status, 404);
  EXPECT_EQ(error_from_status(absl::ResourceExhaustedError("x")).http_status, 429);
  EXPECT_EQ(error_from_status(absl::UnavailableError("x")).http_status, 503);
  EXPECT_EQ(error_from_status(absl::DeadlineExceededError("x")).http_status, 504);
  EXPECT_EQ(error_from_status(absl::InternalError("x")).http_status, 500);
  EXPECT_EQ(error_from_status(absl::DataLossError("why")).message, "why");
}

}  // namespace
}  // namespace millrace::api
