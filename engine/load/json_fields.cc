#include "engine/load/json_fields.h"

#include <limits>

namespace millrace {

StatusOr<nlohmann::json> parse_json_object(const std::string& text, const std::string& source) {
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError(source + " is not valid JSON.");
  if (!json.is_object()) return absl::InvalidArgumentError(source + " is not a JSON object.");
  return json;
}

const nlohmann::json* JsonFields::find(const char* name) const {
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

Status JsonFields::error(const char* name, const std::string& what) const {
  return absl::InvalidArgumentError(source_ + ": field \"" + name + "\" " + what + ".");
}

StatusOr<std::optional<int64_t>> JsonFields::integer(const char* name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::optional<int64_t>();
  const bool fits =
      value->is_number_integer() &&
      (!value->is_number_unsigned() ||
       value->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  if (!fits) return error(name, "must be an integer");
  return std::optional<int64_t>(value->get<int64_t>());
}

StatusOr<std::optional<double>> JsonFields::number(const char* name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_number()) return error(name, "must be a number");
  return std::optional<double>(value->get<double>());
}

StatusOr<std::optional<bool>> JsonFields::boolean(const char* name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return error(name, "must be true or false");
  return std::optional<bool>(value->get<bool>());
}

StatusOr<std::optional<std::string>> JsonFields::string(const char* name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return error(name, "must be a string");
  return std::optional<std::string>(value->get<std::string>());
}

StatusOr<std::vector<double>> JsonFields::numbers(const char* name) const {
  std::vector<double> out;
  const nlohmann::json* value = find(name);
  if (value == nullptr) return out;
  if (!value->is_array()) return error(name, "must be an array of numbers");
  for (const nlohmann::json& entry : *value) {
    if (!entry.is_number()) return error(name, "must be an array of numbers");
    out.push_back(entry.get<double>());
  }
  return out;
}

StatusOr<std::vector<std::string>> JsonFields::strings(const char* name) const {
  std::vector<std::string> out;
  const nlohmann::json* value = find(name);
  if (value == nullptr) return out;
  if (!value->is_array()) return error(name, "must be an array of strings");
  for (const nlohmann::json& entry : *value) {
    if (!entry.is_string()) return error(name, "must be an array of strings");
    out.push_back(entry.get<std::string>());
  }
  return out;
}

StatusOr<int64_t> JsonFields::required_integer(const char* name) const {
  MR_ASSIGN_OR_RETURN(const auto value, integer(name));
  if (!value) return error(name, "is missing");
  return *value;
}

}  // namespace millrace
