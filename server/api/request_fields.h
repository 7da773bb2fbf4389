// The table of request fields: each known member of a generating request, its kind, its legal
// values and where it goes. Null is absent, unknown members are ignored. Pure functions; internal
// to server/api.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "server/api/request.h"

namespace millrace::api {

// Reads every known member of `body` (an object) into `request`, which holds the defaults.
std::optional<Error> read_fields(const nlohmann::ordered_json& body, const RequestRules& rules,
                                 GenerationRequest& request);

// A list of ids below rules.vocab.
Result<std::vector<Token>> read_token_ids(const nlohmann::ordered_json& value,
                                          std::string_view param, const RequestRules& rules);

}  // namespace millrace::api
