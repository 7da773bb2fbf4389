#include "server/net/request_parser.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace::net {
namespace {

constexpr char kGet[] = "GET /v1/models?limit=1&x HTTP/1.1\r\nHost: a\r\nX-Thing: one\r\n\r\n";

RequestParser parse(const std::string& text, ParserLimits limits = {}) {
  RequestParser parser(limits);
  parser.feed(text);
  return parser;
}

int refused(const std::string& text, ParserLimits limits = {}) {
  const RequestParser parser = parse(text, limits);
  return parser.state() == RequestParser::State::failed ? parser.error_status() : 0;
}

std::string post_with(const std::string& headers, const std::string& body) {
  return "POST / HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n" + body;
}

TEST(RequestParser, SplitsTheTargetAndLowersHeaderNames) {
  RequestParser parser = parse(kGet);
  ASSERT_EQ(parser.state(), RequestParser::State::done);
  EXPECT_TRUE(parser.keep_alive());
  const HttpRequest request = parser.take_request();
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.path, "/v1/models");
  EXPECT_EQ(request.query, "limit=1&x");
  EXPECT_EQ(request.header("x-thing"), "one");
  EXPECT_EQ(request.header("absent"), "");
}

TEST(RequestParser, AnyCutOfTheBytesGivesTheSameRequest) {
  const std::string text = post_with("Transfer-Encoding: chunked\r\n",
                                     "3\r\nabc\r\n10;ext=1\r\n0123456789abcdef\r\n0\r\n\r\n");
  for (size_t step = 1; step <= text.size(); ++step) {
    RequestParser parser({});
    std::string buffer;
    for (size_t at = 0; at < text.size(); at += step) {
      buffer += text.substr(at, step);
      buffer.erase(0, parser.feed(buffer));
    }
    ASSERT_EQ(parser.state(), RequestParser::State::done) << "step " << step;
    EXPECT_EQ(parser.take_request().body, "abc0123456789abcdef") << "step " << step;
    EXPECT_TRUE(buffer.empty()) << "step " << step;
  }
}

TEST(RequestParser, LeavesThePipelinedRequestAlone) {
  const std::string first = post_with("Content-Length: 2\r\n", "hi");
  RequestParser parser({});
  EXPECT_EQ(parser.feed(first + kGet), first.size());
  ASSERT_EQ(parser.state(), RequestParser::State::done);
  EXPECT_EQ(parser.take_request().body, "hi");
}

TEST(RequestParser, RefusesWhatTwoParsersCouldReadDifferently) {
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  EXPECT_EQ(refused(post_with("Content-Length: 3\r\n" + chunked, "0\r\n\r\n")), 400);
  EXPECT_EQ(refused(post_with(chunked + "Content-Length: 3\r\n", "0\r\n\r\n")), 400);
  EXPECT_EQ(refused(post_with("Content-Length: 3\r\nContent-Length: 4\r\n", "abcd")), 400);
  EXPECT_EQ(refused(post_with("Content-Length: +3\r\n", "abc")), 400);
  EXPECT_EQ(refused(post_with("Content-Length: 3x\r\n", "abc")), 400);
  EXPECT_EQ(refused(post_with("Content-Length : 3\r\n", "abc")), 400);
  EXPECT_EQ(refused(post_with(chunked + chunked, "0\r\n\r\n")), 400);
  EXPECT_EQ(refused(post_with("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n")), 501);
  EXPECT_EQ(refused(post_with("Transfer-Encoding: identity\r\n", "")), 501);
  EXPECT_EQ(refused("POST / HTTP/1.0\r\nHost: a\r\n" + chunked + "\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(refused("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
  EXPECT_EQ(refused("GET / HTTP/1.1\r\n\r\n"), 400);
}

TEST(RequestParser, RefusesWhatIsNotHttp) {
  EXPECT_EQ(refused("\x16\x03\x01\x02\x00\x01\r\n\r\n"), 400);
  EXPECT_EQ(refused("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(refused("GET /\r\n\r\n"), 400);
  EXPECT_EQ(refused("GET models HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(refused("GET / HTTP/1.1\r\nHost: a\r\nno colon here\r\n\r\n"), 400);
  EXPECT_EQ(refused(std::string("GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", 33)), 400);
  EXPECT_EQ(refused(post_with("Transfer-Encoding: chunked\r\n", "zz\r\nabc\r\n")), 400);
  EXPECT_EQ(refused(post_with("Transfer-Encoding: chunked\r\n", "-1\r\nabc\r\n")), 400);
  EXPECT_EQ(refused(post_with("Transfer-Encoding: chunked\r\n", "ffffffffffffffffff\r\na\r\n")),
            400);
  EXPECT_EQ(refused(post_with("Content-Length: 1\r\nExpect: magic\r\n", "a")), 417);
}

TEST(RequestParser, LimitsHoldAtTheirExactValue) {
  ParserLimits limits;
  limits.max_body_bytes = 8;
  EXPECT_EQ(parse(post_with("Content-Length: 8\r\n", "12345678"), limits).state(),
            RequestParser::State::done);
  EXPECT_EQ(refused(post_with("Content-Length: 9\r\n", ""), limits), 413);
  EXPECT_EQ(refused(post_with("Content-Length: 18446744073709551615\r\n", ""), limits), 413);
  EXPECT_EQ(
      refused(post_with("Transfer-Encoding: chunked\r\n", "5\r\n12345\r\n4\r\n1234\r\n"), limits),
      413);
  limits.max_header_bytes = 256;
  const std::string fits(150, 'a'), too_long(300, 'a');
  EXPECT_EQ(refused(post_with("X: " + fits + "\r\n", ""), limits), 0);
  EXPECT_EQ(refused(post_with("X: " + too_long + "\r\n", ""), limits), 431);
  EXPECT_EQ(refused("GET /" + std::string(5000, 'a'), limits), 431);
  EXPECT_EQ(
      refused(post_with("Transfer-Encoding: chunked\r\n", "1;" + std::string(5000, 'x')), limits),
      400);
}

TEST(RequestParser, AbsoluteFormAndEmptyLinesInFrontAreLegal) {
  RequestParser parser = parse("\r\n\r\nGET http://host:80/a/b?c HTTP/1.1\r\nHost: host\r\n\r\n");
  ASSERT_EQ(parser.state(), RequestParser::State::done);
  EXPECT_EQ(parser.take_request().path, "/a/b");
  EXPECT_FALSE(parse("GET / HTTP/1.0\r\n\r\n").keep_alive());
  EXPECT_FALSE(parse("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").keep_alive());
}

}  // namespace
}  // namespace millrace::net
