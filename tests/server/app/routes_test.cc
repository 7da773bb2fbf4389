#include "server/app/routes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "tests/server/app/service_fixture.h"

namespace millrace::app {
namespace {

// Written out here and not derived from the table: a new route fails until it is classified.
const std::map<std::string, bool> kOpenByPath = {
    {"/v1/chat/completions", false},
    {"/v1/completions", false},
    {"/v1/models", false},
    {"/v1/models/", false},
    {"/tokenize", false},
    {"/detokenize", false},
    {"/version", false},
    {"/load", false},
    {"/health", true},
    {"/livez", true},
    {"/readyz", true},
    {"/ping", true},
    {"/metrics", true},
};

class RoutesTest : public ServiceTest {
 protected:
  void start_with_keys() {
    ServiceOptions options;
    options.keys = ApiKeys({"secret-one", "secret-two"});
    start_ready(std::move(options));
  }
};

TEST_F(RoutesTest, EveryRouteIsClosedWithoutAKeyExceptProbesAndMetrics) {
  start_with_keys();
  ASSERT_EQ(all_routes().size(), kOpenByPath.size());
  for (const Route& route : all_routes()) {
    const std::string path(route.path);
    ASSERT_EQ(kOpenByPath.count(path), 1u) << path;
    const std::string target = path + (route.takes_name() ? "test-model" : "");
    net::LoopbackClient client(port());
    for (const char* method : {"GET", "POST", "OPTIONS", "DELETE"}) {
      const int status = client.request(method, target, "{}").status;
      if (kOpenByPath.at(path)) {
        EXPECT_NE(status, 401) << method << " " << path;
      } else {
        EXPECT_EQ(status, 401) << method << " " << path;
      }
    }
  }
}

TEST_F(RoutesTest, OtherSpellingsOfARouteStayClosed) {
  start_with_keys();
  for (const char* target : {"//v1/chat/completions", "/v1/../v1/models", "/V1/models",
                             "/v1/models/", "/v1/chat/completions/", "/%76%31/models",
                             "/health/../v1/models", "/health/", "/metrics/x", "/unknown", "*"}) {
    net::LoopbackClient client(port());
    const net::ClientResponse response = client.request("GET", target);
    EXPECT_EQ(response.status, 401) << target;
    const Json error = Json::parse(response.body)["error"];
    EXPECT_EQ(error["code"], "invalid_api_key") << target;
    EXPECT_TRUE(error.contains("message") && error.contains("type") && error.contains("param"));
  }
}

TEST_F(RoutesTest, OnlyOneWellFormedKnownKeyOpens) {
  start_with_keys();
  const std::vector<std::pair<std::string, int>> cases = {
      {"Authorization: Bearer secret-one\r\n", 200},
      {"Authorization: bearer secret-two\r\n", 200},
      {"authorization: BEARER  secret-one\r\n", 200},
      {"Authorization: Bearer \r\n", 401},
      {"Authorization: Bearer\r\n", 401},
      {"Authorization: secret-one\r\n", 401},
      {"Authorization: Basic secret-one\r\n", 401},
      {"Authorization: Bearer secret-on\r\n", 401},
      {"Authorization: Bearer secret-one2\r\n", 401},
      {"Authorization: Bearer secret-one\r\nAuthorization: Bearer secret-one\r\n", 401},
      {"X-Api-Key: secret-one\r\n", 401},
  };
  for (const auto& [headers, status] : cases) {
    EXPECT_EQ(get("/v1/models", headers).status, status) << headers;
  }
}

TEST_F(RoutesTest, WithoutKeysEverythingIsOpen) {
  start_ready();
  EXPECT_EQ(get("/v1/models").status, 200);
  EXPECT_EQ(get("/version").status, 200);
  EXPECT_EQ(get("/load").status, 200);
}

TEST_F(RoutesTest, UnknownPathsAndWrongMethods) {
  start_ready();
  EXPECT_EQ(get("/v1/nothing").status, 404);
  const net::ClientResponse wrong = get("/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST, OPTIONS");
  EXPECT_EQ(post("/metrics", "{}").headers.at("allow"), "GET, HEAD, OPTIONS");
  net::LoopbackClient client(port());
  const net::ClientResponse options = client.request("OPTIONS", "/v1/models");
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.headers.at("allow"), "GET, HEAD, OPTIONS");
  EXPECT_EQ(client.request("HEAD", "/health").status, 200);
}

TEST_F(RoutesTest, ModelsAreFoundUnderEachOfTheirNames) {
  start_ready();
  const Json list = Json::parse(get("/v1/models").body);
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["id"], "test-model");
  EXPECT_EQ(Json::parse(get("/v1/models/test-model").body)["id"], "test-model");
  EXPECT_EQ(Json::parse(get("/v1/models/org/alias").body)["id"], "org/alias");
  EXPECT_EQ(Json::parse(get("/v1/models/org%2Falias").body)["id"], "org/alias");
  const net::ClientResponse unknown = get("/v1/models/nope");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_NE(unknown.body.find("test-model"), std::string::npos);
}

TEST(ApiKeys, AFileWithoutAKeyIsAnErrorAndNotAnOpenServer) {
  const std::string path = testing::TempDir() + "millrace_keys_" + std::to_string(::getpid());
  FILE* file = std::fopen(path.c_str(), "w");
  std::fputs("# none yet\n\n", file);
  std::fclose(file);
  EXPECT_FALSE(ApiKeys::load({}, path).ok());
  EXPECT_FALSE(ApiKeys::load({}, path + ".absent").ok());
  EXPECT_FALSE(ApiKeys::load({""}, "").ok());
  EXPECT_FALSE(ApiKeys::load({}, "")->required());
  EXPECT_TRUE(ApiKeys::load({"k"}, "")->required());
}

}  // namespace
}  // namespace millrace::app
