// ServiceTest: a Service on a loopback port over a ScriptedEngine, with what its tests ask of it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/text/chat_template.h"
#include "server/app/service.h"
#include "tests/server/app/byte_tokenizer.h"
#include "tests/server/app/scripted_engine.h"
#include "tests/server/net/loopback_client.h"

namespace millrace::app {

using Json = nlohmann::json;

class ServiceTest : public testing::Test {
 protected:
  ServiceTest();
  ~ServiceTest() override;

  void start(ServiceOptions options = {});  // opens the port, does not become ready
  void make_ready();
  void start_ready(ServiceOptions options = {});
  void stop();

  uint16_t port() const { return service_->port(); }

  // Polls for at most three seconds.
  static bool eventually(const std::function<bool()>& condition);

  static std::string chat_body(const std::string& extra_members = {});
  static std::string http_post(const std::string& path, const std::string& body,
                               const std::string& headers = {});
  net::ClientResponse post(const std::string& path, const std::string& body,
                           const std::string& headers = {});
  net::ClientResponse get(const std::string& path, const std::string& headers = {});
  // The sum over all label sets of the exposition's lines that begin with `prefix`.
  double metric(const std::string& prefix);

  int log_fd_ = -1;
  std::unique_ptr<Logger> logger_;
  ByteTokenizer tokenizer_;
  std::unique_ptr<ChatTemplate> template_;
  std::unique_ptr<GenerationContext> context_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<ScriptedEngine> engine_;
};

// The `data:` payloads of a stream, in order.
std::vector<std::string> stream_events(const std::string& body);
// The joined content deltas of a chat stream.
std::string joined_content(const std::string& body);

}  // namespace millrace::app
