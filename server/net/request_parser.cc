#include "server/net/request_parser.h"

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

namespace millrace::net {

namespace http = boost::beast::http;

struct RequestParser::Impl {
  http::request_parser<http::string_body> parser;
};

namespace {

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

std::string_view trim_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// "http://host/path" is a legal target too; what follows the authority is the path.
std::string_view origin_form(std::string_view target) {
  for (std::string_view scheme : {"http://", "https://"}) {
    if (target.size() < scheme.size() ||
        !equals_ignoring_case(target.substr(0, scheme.size()), scheme)) {
      continue;
    }
    const size_t slash = target.find('/', scheme.size());
    return slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  return target;
}

}  // namespace

RequestParser::RequestParser(const ParserLimits& limits)
    : impl_(std::make_unique<Impl>()), limits_(limits) {
  impl_->parser.header_limit(limits.max_header_bytes);
  impl_->parser.body_limit(limits.max_body_bytes);
}

RequestParser::~RequestParser() = default;
RequestParser::RequestParser(RequestParser&&) noexcept = default;

void RequestParser::fail(int status, std::string message) {
  state_ = State::failed;
  error_status_ = status;
  error_message_ = std::move(message);
}

size_t RequestParser::feed(std::string_view bytes) {
  size_t consumed = 0;
  // Empty lines before a request line are to be ignored (RFC 9112, 2.2).
  while (!started_ && consumed < bytes.size() &&
         (bytes[consumed] == '\r' || bytes[consumed] == '\n')) {
    ++consumed;
  }
  while (consumed < bytes.size() && state_ != State::done && state_ != State::failed) {
    started_ = true;
    boost::beast::error_code error;
    const size_t n = impl_->parser.put(
        boost::asio::buffer(bytes.data() + consumed, bytes.size() - consumed), error);
    consumed += n;
    if (error == http::error::body_limit) {
      fail(413, "The request body is larger than the limit of " +
                    std::to_string(limits_.max_body_bytes) + " bytes.");
    } else if (error == http::error::header_limit) {
      fail(431, "The request line and headers are larger than the limit of " +
                    std::to_string(limits_.max_header_bytes) + " bytes.");
    } else if (error == http::error::bad_version) {
      fail(505, "Only HTTP/1.1 and HTTP/1.0 are spoken here.");
    } else if (error && error != http::error::need_more) {
      fail(400, "The request is not valid HTTP/1.1: " + error.message() + ".");
    } else if (state_ == State::header && impl_->parser.is_header_done()) {
      state_ = State::body;
      check_header();
      impl_->parser.eager(true);
    }
    if (state_ == State::body && impl_->parser.is_done()) state_ = State::done;
    if (state_ == State::body && n == 0 && bytes.size() - consumed > limits_.max_header_bytes) {
      fail(400, "A chunk header or the trailers are larger than the limit for headers.");
    }
    if (error == http::error::need_more || (n == 0 && state_ != State::done)) break;
  }
  return consumed;
}

void RequestParser::check_header() {
  const auto& message = impl_->parser.get();
  http_1_0_ = message.version() == 10;
  keep_alive_ = message.keep_alive();
  const auto hosts = message.equal_range(http::field::host);
  const auto num_hosts = std::distance(hosts.first, hosts.second);
  if (num_hosts > 1 || (num_hosts == 0 && !http_1_0_)) {
    return fail(400, "A request must have exactly one Host header.");
  }
  const bool has_length = message.count(http::field::content_length) > 0;
  const size_t num_encodings = message.count(http::field::transfer_encoding);
  if (num_encodings > 0) {
    if (has_length || http_1_0_ || num_encodings > 1) {
      return fail(400,
                  "Transfer-Encoding must come once, in HTTP/1.1, and without Content-Length.");
    }
    if (!equals_ignoring_case(trim_blanks(view(message[http::field::transfer_encoding])),
                              "chunked")) {
      return fail(501, "The only Transfer-Encoding understood here is chunked.");
    }
  }
  if (message.count(http::field::expect) > 0) {
    if (!equals_ignoring_case(view(message[http::field::expect]), "100-continue")) {
      return fail(417, "The only Expect understood here is 100-continue.");
    }
    expects_continue_ = !http_1_0_;
  }
  const std::string_view target = view(message.target());
  if (target != "*" && (origin_form(target).empty() || origin_form(target).front() != '/')) {
    return fail(400, "The request target must be a path that begins with '/'.");
  }
}

HttpRequest RequestParser::take_request() {
  auto message = impl_->parser.release();
  HttpRequest request;
  request.method = std::string(view(message.method_string()));
  request.target = std::string(view(message.target()));
  const std::string_view target = origin_form(request.target);
  const size_t question = target.find('?');
  request.path = std::string(target.substr(0, question));
  if (question != std::string_view::npos) request.query = std::string(target.substr(question + 1));
  for (const auto& field : message) {
    request.headers.emplace_back(to_lower(view(field.name_string())),
                                 std::string(view(field.value())));
  }
  request.body = std::move(message.body());
  request.received = Clock::now();
  return request;
}

}  // namespace millrace::net
