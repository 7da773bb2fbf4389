// The structured members of a chat request, checked and brought into the form that chat templates
// read. Pure functions; any thread. Internal to server/api.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "server/api/error.h"
#include "server/api/request.h"

namespace millrace::api {

// `messages`: each becomes {role, content, name?, tool_calls?, tool_call_id?, reasoning_content?}
// with content a string (text parts joined by newlines) and the developer role as system.
Result<nlohmann::ordered_json> read_messages(const nlohmann::ordered_json& value,
                                             const RequestRules& rules);

// `tools`: function tools, members and their order kept.
Result<nlohmann::ordered_json> read_tools(const nlohmann::ordered_json& value,
                                          const RequestRules& rules);

// The legacy `functions`, as tools.
Result<nlohmann::ordered_json> read_functions(const nlohmann::ordered_json& value,
                                              const RequestRules& rules);

}  // namespace millrace::api
