#include "server/app/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <fstream>

namespace millrace::app {

ApiKeys::ApiKeys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) digests_.push_back(digest(key));
}

StatusOr<ApiKeys> ApiKeys::load(std::vector<std::string> keys, const std::string& file) {
  if (!file.empty()) {
    std::ifstream input(file);
    if (!input) return absl::NotFoundError("--api-key-file: cannot read " + file);
    const size_t before = keys.size();
    for (std::string line; std::getline(input, line);) {
      while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
      if (!line.empty() && line.front() != '#') keys.push_back(line);
    }
    if (keys.size() == before) {
      return absl::InvalidArgumentError("--api-key-file: " + file + " holds no key");
    }
  }
  for (const std::string& key : keys) {
    if (key.empty()) return absl::InvalidArgumentError("--api-key: a key must not be empty");
  }
  return ApiKeys(keys);
}

ApiKeys::Digest ApiKeys::digest(std::string_view key) {
  Digest result;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), result.data());
  return result;
}

bool ApiKeys::allows(const net::HttpRequest& request) const {
  if (!required()) return true;
  if (request.header_count("authorization") != 1) return false;
  const std::string_view value = request.header("authorization");
  const size_t space = value.find(' ');
  if (space == std::string_view::npos ||
      !net::equals_ignoring_case(value.substr(0, space), "bearer")) {
    return false;
  }
  std::string_view key = value.substr(space + 1);
  while (!key.empty() && key.front() == ' ') key.remove_prefix(1);
  const Digest given = digest(key);
  bool known = false;
  // Every key is compared, so the time tells nothing about which one came close.
  for (const Digest& digest : digests_) {
    known |= CRYPTO_memcmp(digest.data(), given.data(), given.size()) == 0;
  }
  return known;
}

}  // namespace millrace::app
