// Reading members of JSON documents from outside: absent, null and wrongly typed members are told
// apart by the caller's default, never by an exception.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace millrace {

// Null if `object` is no object, or the member is absent or null.
inline const nlohmann::json* json_member(const nlohmann::json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

inline std::string json_string(const nlohmann::json& object, const char* name,
                               std::string otherwise = {}) {
  const nlohmann::json* const member = json_member(object, name);
  return member != nullptr && member->is_string() ? member->get<std::string>() : otherwise;
}

inline bool json_bool(const nlohmann::json& object, const char* name, bool otherwise) {
  const nlohmann::json* const member = json_member(object, name);
  return member != nullptr && member->is_boolean() ? member->get<bool>() : otherwise;
}

inline int64_t json_int(const nlohmann::json& object, const char* name, int64_t otherwise) {
  const nlohmann::json* const member = json_member(object, name);
  if (member == nullptr || !member->is_number_integer()) return otherwise;
  if (member->is_number_unsigned() && member->get<uint64_t>() > INT64_MAX) return otherwise;
  return member->get<int64_t>();
}

}  // namespace millrace
