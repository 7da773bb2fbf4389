// Typed reads from one JSON object of a checkpoint's side files. An absent or null field is
// nothing; a field of another type is INVALID_ARGUMENT that names file and field.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace millrace {

// Parses a whole document whose top level must be an object.
StatusOr<nlohmann::json> parse_json_object(const std::string& text, const std::string& source);

class JsonFields {
 public:
  // Both outlive the reader. `source` names the file (and the place in it) for errors.
  JsonFields(const nlohmann::json& object, std::string source)
      : object_(object), source_(std::move(source)) {}

  const std::string& source() const { return source_; }
  const nlohmann::json* find(const char* name) const;  // null if absent or JSON null
  bool is_present(const char* name) const { return object_.contains(name); }

  StatusOr<std::optional<int64_t>> integer(const char* name) const;
  StatusOr<std::optional<double>> number(const char* name) const;
  StatusOr<std::optional<bool>> boolean(const char* name) const;
  StatusOr<std::optional<std::string>> string(const char* name) const;
  StatusOr<std::vector<double>> numbers(const char* name) const;       // empty if absent
  StatusOr<std::vector<std::string>> strings(const char* name) const;  // empty if absent
  StatusOr<int64_t> required_integer(const char* name) const;

  Status error(const char* name, const std::string& what) const;

 private:
  const nlohmann::json& object_;
  const std::string source_;
};

}  // namespace millrace
