#include "tests/server/app/service_fixture.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace millrace::app {

ServiceTest::ServiceTest() {
  log_fd_ = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  logger_ = std::make_unique<Logger>(LogLevel::debug, LogFormat::json, log_fd_);
  template_ = *ChatTemplate::compile("{% for m in messages %}{{ m.content }}{% endfor %}");
  ContextOptions options;
  options.model_names = {"test-model", "org/alias"};
  options.root = "test-root";
  options.max_model_len = 4096;
  options.vocab = tokenizer_.size();
  options.eos_tokens = {ByteTokenizer::kEnd};
  context_ = *GenerationContext::create(options, tokenizer_, template_.get(), absl::OkStatus());
}

ServiceTest::~ServiceTest() {
  stop();
  engine_.reset();
  service_.reset();
  logger_.reset();
  ::close(log_fd_);
}

void ServiceTest::start(ServiceOptions options) {
  options.http.host = "127.0.0.1";
  options.http.port = 0;
  service_ = std::make_unique<Service>(std::move(options), *logger_);
  ASSERT_TRUE(service_->start().ok());
  engine_ = std::make_unique<ScriptedEngine>(service_->sink());
}

void ServiceTest::make_ready() {
  service_->set_ready(*context_, *engine_,
                      {.block_size = 16, .num_blocks = 100, .max_model_len = 4096});
}

void ServiceTest::start_ready(ServiceOptions options) {
  start(std::move(options));
  make_ready();
}

void ServiceTest::stop() {
  if (engine_) engine_->stop();
  if (service_) service_->stop();
}

bool ServiceTest::eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 600; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

std::string ServiceTest::chat_body(const std::string& extra_members) {
  std::string body = R"({"model":"test-model","messages":[{"role":"user","content":"hi"}])";
  if (!extra_members.empty()) body += "," + extra_members;
  return body + "}";
}

std::string ServiceTest::http_post(const std::string& path, const std::string& body,
                                   const std::string& headers) {
  return "POST " + path + " HTTP/1.1\r\nHost: a\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

net::ClientResponse ServiceTest::post(const std::string& path, const std::string& body,
                                      const std::string& headers) {
  net::LoopbackClient client(port());
  client.send(http_post(path, body, headers));
  return client.read_response();
}

net::ClientResponse ServiceTest::get(const std::string& path, const std::string& headers) {
  net::LoopbackClient client(port());
  return client.request("GET", path, {}, headers);
}

double ServiceTest::metric(const std::string& prefix) {
  const std::string text = get("/metrics").body;
  double sum = 0.0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.rfind(prefix, 0) != 0) continue;
    sum += std::stod(line.substr(line.rfind(' ') + 1));
  }
  return sum;
}

std::vector<std::string> stream_events(const std::string& body) {
  std::vector<std::string> events;
  for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const size_t end = body.find("\n\n", at);
    events.push_back(body.substr(at + 6, end - at - 6));
    if (end == std::string::npos) break;
    at = end;
  }
  return events;
}

std::string joined_content(const std::string& body) {
  std::string text;
  for (const std::string& event : stream_events(body)) {
    const Json json = Json::parse(event, nullptr, false);
    if (!json.is_object() || !json.contains("choices")) continue;
    for (const Json& choice : json["choices"]) {
      const Json& delta = choice.at("delta");
      if (delta.contains("content") && delta["content"].is_string()) {
        text += delta["content"].get<std::string>();
      }
    }
  }
  return text;
}

}  // namespace millrace::app
