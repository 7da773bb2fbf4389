// ApiKeys: who may call the closed routes. Immutable after it is made; any thread may ask.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "server/net/http_types.h"

namespace millrace::app {

class ApiKeys {
 public:
  ApiKeys() = default;
  explicit ApiKeys(const std::vector<std::string>& keys);
  // The given keys and, if `file` is not empty, one key per line of it (blank lines and lines that
  // begin with '#' are skipped). A file without any key is an error, not an open server.
  static StatusOr<ApiKeys> load(std::vector<std::string> keys, const std::string& file);

  bool required() const { return !digests_.empty(); }
  // True if no key is required, or the request carries exactly one Authorization header with a
  // known bearer key. Its time does not depend on how much of a key matches.
  bool allows(const net::HttpRequest& request) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  static Digest digest(std::string_view key);

  std::vector<Digest> digests_;
};

}  // namespace millrace::app
