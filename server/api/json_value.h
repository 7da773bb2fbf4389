// Reading values of a parsed JSON body: parsing without exceptions, and the sentences for values
// that are not what they should be. Pure functions. Internal to server/api and the batch reader.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "server/api/error.h"

namespace millrace::api {

// The size of what `text` becomes has been checked (json_shape.h).
Result<nlohmann::ordered_json> parse_json(std::string_view text);

// Compact, always well-formed.
std::string dump(const nlohmann::ordered_json& value);
// The same, cut to what fits into an error message.
std::string shown(const nlohmann::ordered_json& value);

// Null if the member is absent or null: the two are one.
const nlohmann::ordered_json* find_member(const nlohmann::ordered_json& object,
                                          std::string_view name);

// A whole number, also one written as 5.0. Nothing if it is another value or beyond int64.
std::optional<int64_t> as_integer(const nlohmann::ordered_json& value);

Error wrong_type(std::string_view param, const nlohmann::ordered_json& value,
                 std::string_view legal);
Error out_of_range(std::string_view param, const nlohmann::ordered_json& value,
                   std::string_view legal);

}  // namespace millrace::api
