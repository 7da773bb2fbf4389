#include "server/api/messages.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "server/api/json_shape.h"
#include "server/api/json_value.h"

namespace millrace::api {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kRoles = "system, developer, user, assistant, tool";

std::string element(std::string_view list, size_t idx) {
  return std::string(list) + '[' + std::to_string(idx) + ']';
}

// A member that may be absent or null, else a string.
std::optional<Error> copy_string(const Json& from, const char* name, const std::string& path,
                                 Json& to) {
  const Json* value = find_member(from, name);
  if (!value) return std::nullopt;
  if (!value->is_string()) return wrong_type(path + '.' + name, *value, "a string");
  to[name] = *value;
  return std::nullopt;
}

// Text parts only: what would have to be fetched is refused before anything is opened.
Result<Json> read_content(const Json& value, const std::string& path, const Limits& limits) {
  if (value.is_string()) return value;
  if (!value.is_array()) return wrong_type(path, value, "a string or a list of parts");
  if (static_cast<int64_t>(value.size()) > limits.max_content_parts) {
    return invalid_field(path, path + ": at most " + std::to_string(limits.max_content_parts) +
                                   " parts are allowed.");
  }
  std::string joined;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string part_path = element(path, i);
    const Json& part = value[i];
    if (!part.is_object()) return wrong_type(part_path, part, "an object");
    const Json* type = find_member(part, "type");
    if (!type || !type->is_string()) {
      return invalid_field(part_path + ".type", part_path + ".type must be \"text\".");
    }
    const auto& name = type->get_ref<const std::string&>();
    if (name != "text" && name != "input_text") {
      return unsupported_field(part_path + ".type",
                               part_path + ".type: " + shown(*type) +
                                   " is not supported; this server reads text parts only.");
    }
    const Json* text = find_member(part, "text");
    if (!text || !text->is_string()) {
      return invalid_field(part_path + ".text", part_path + ".text must be a string.");
    }
    if (i > 0) joined += '\n';
    joined += text->get_ref<const std::string&>();
  }
  return Json(std::move(joined));
}

// Arguments arrive as JSON text (OpenAI) or as an object; "" stands for no arguments. They leave in
// the one form that the template wants.
Result<Json> read_arguments(const Json* value, const std::string& path, const RequestRules& rules) {
  if (!value) return Json(rules.tool_arguments_as_objects ? Json::object() : Json("{}"));
  if (value->is_object()) {
    return rules.tool_arguments_as_objects ? *value : Json(dump(*value));
  }
  if (!value->is_string()) return wrong_type(path, *value, "JSON text of an object");
  std::string text = value->get<std::string>();
  if (text.empty()) text = "{}";
  if (auto error = check_json_shape(text, rules.limits, {})) {
    return invalid_field(path, path + ": " + error->message);
  }
  Result<Json> parsed = parse_json(text);
  if (!parsed.ok()) return invalid_field(path, path + ": " + parsed.error().message);
  if (!parsed->is_object()) return wrong_type(path, *parsed, "JSON text of an object");
  return rules.tool_arguments_as_objects ? *std::move(parsed) : Json(std::move(text));
}

Result<Json> read_call(const Json& function, const std::string& path, const RequestRules& rules) {
  if (!function.is_object()) return wrong_type(path, function, "an object");
  const Json* name = find_member(function, "name");
  if (!name || !name->is_string() || name->get_ref<const std::string&>().empty()) {
    return invalid_field(path + ".name", path + ".name must be a string that is not empty.");
  }
  Result<Json> arguments =
      read_arguments(find_member(function, "arguments"), path + ".arguments", rules);
  if (!arguments.ok()) return arguments;
  Json call = Json::object();
  call["name"] = *name;
  call["arguments"] = *std::move(arguments);
  return call;
}

Result<Json> read_tool_calls(const Json& value, const std::string& path,
                             const RequestRules& rules) {
  if (!value.is_array()) return wrong_type(path, value, "a list");
  if (static_cast<int64_t>(value.size()) > rules.limits.max_tools) {
    return invalid_field(
        path, path + ": at most " + std::to_string(rules.limits.max_tools) + " calls are allowed.");
  }
  Json calls = Json::array();
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string call_path = element(path, i);
    if (!value[i].is_object()) return wrong_type(call_path, value[i], "an object");
    const Json* function = find_member(value[i], "function");
    if (!function) {
      return invalid_field(call_path + ".function", call_path + ".function is missing.");
    }
    Result<Json> read = read_call(*function, call_path + ".function", rules);
    if (!read.ok()) return read;
    Json call = Json::object();
    if (auto error = copy_string(value[i], "id", call_path, call)) return *std::move(error);
    call["type"] = "function";
    call["function"] = *std::move(read);
    calls.push_back(std::move(call));
  }
  return calls;
}

// tool_calls and the legacy function_call of an assistant's message.
std::optional<Error> read_calls_into(const Json& value, const std::string& path,
                                     const RequestRules& rules, Json& message) {
  if (const Json* calls = find_member(value, "tool_calls"); calls && !calls->empty()) {
    Result<Json> read = read_tool_calls(*calls, path + ".tool_calls", rules);
    if (!read.ok()) return read.error();
    message["tool_calls"] = *std::move(read);
  } else if (const Json* call = find_member(value, "function_call")) {
    Result<Json> read = read_call(*call, path + ".function_call", rules);
    if (!read.ok()) return read.error();
    message["tool_calls"] = Json::array({Json{{"type", "function"}, {"function", *read}}});
  }
  return std::nullopt;
}

Result<std::string> read_role(const Json& value, const std::string& path) {
  const Json* role = find_member(value, "role");
  const std::string role_path = path + ".role";
  if (!role) return invalid_field(role_path, role_path + " is missing.");
  if (!role->is_string()) return wrong_type(role_path, *role, "a string");
  const auto& name = role->get_ref<const std::string&>();
  if (name == "developer") return std::string("system");
  if (name == "system" || name == "user" || name == "assistant" || name == "tool") return name;
  return invalid_field(
      role_path, role_path + ": " + shown(*role) + " is not one of " + std::string(kRoles) + ".");
}

Result<Json> read_message(const Json& value, const std::string& path, const RequestRules& rules) {
  if (!value.is_object()) return wrong_type(path, value, "an object");
  Result<std::string> role = read_role(value, path);
  if (!role.ok()) return role.error();
  Json message = Json::object();
  message["role"] = *role;
  if (const Json* content = find_member(value, "content")) {
    Result<Json> read = read_content(*content, path + ".content", rules.limits);
    if (!read.ok()) return read;
    message["content"] = *std::move(read);
  } else if (*role == "assistant") {
    message["content"] = "";  // an assistant may have said nothing, beside calling tools
  } else {
    return invalid_field(path + ".content", path + ".content must be a string or a list of parts.");
  }
  for (const char* name : {"name", "tool_call_id", "reasoning_content"}) {
    if (auto error = copy_string(value, name, path, message)) return *std::move(error);
  }
  if (*role == "assistant") {
    if (auto error = read_calls_into(value, path, rules, message)) return *std::move(error);
  }
  return message;
}

std::optional<Error> check_function(const Json& function, const std::string& path) {
  if (!function.is_object()) return wrong_type(path, function, "an object");
  const Json* name = find_member(function, "name");
  if (!name || !name->is_string() || name->get_ref<const std::string&>().empty()) {
    return invalid_field(path + ".name", path + ".name must be a string that is not empty.");
  }
  if (const Json* text = find_member(function, "description"); text && !text->is_string()) {
    return wrong_type(path + ".description", *text, "a string");
  }
  const Json* parameters = find_member(function, "parameters");
  if (parameters && !parameters->is_object()) {
    return wrong_type(path + ".parameters", *parameters, "an object");
  }
  const Json* strict = find_member(function, "strict");
  if (strict && !strict->is_boolean()) return wrong_type(path + ".strict", *strict, "a boolean");
  if (strict && strict->get<bool>()) {
    return unsupported_field(path + ".strict",
                             path + ".strict: strict tools are not supported in this version.");
  }
  return std::nullopt;
}

std::optional<Error> check_tool_list(const Json& value, const std::string& path,
                                     const Limits& limits) {
  if (!value.is_array()) return wrong_type(path, value, "a list");
  if (static_cast<int64_t>(value.size()) <= limits.max_tools) return std::nullopt;
  return invalid_field(
      path, path + ": at most " + std::to_string(limits.max_tools) + " tools are allowed.");
}

}  // namespace

Result<Json> read_messages(const Json& value, const RequestRules& rules) {
  if (!value.is_array()) return wrong_type("messages", value, "a list");
  if (value.empty()) return invalid_field("messages", "messages must have at least one element.");
  if (static_cast<int64_t>(value.size()) > rules.limits.max_messages) {
    return invalid_field("messages", "messages: at most " +
                                         std::to_string(rules.limits.max_messages) +
                                         " elements are allowed.");
  }
  Json messages = Json::array();
  for (size_t i = 0; i < value.size(); ++i) {
    Result<Json> message = read_message(value[i], element("messages", i), rules);
    if (!message.ok()) return message;
    messages.push_back(*std::move(message));
  }
  return messages;
}

Result<Json> read_tools(const Json& value, const RequestRules& rules) {
  if (auto error = check_tool_list(value, "tools", rules.limits)) return *std::move(error);
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string path = element("tools", i);
    if (!value[i].is_object()) return wrong_type(path, value[i], "an object");
    const Json* type = find_member(value[i], "type");
    if (!type || *type != "function") {
      return unsupported_field(path + ".type", path + ".type must be \"function\".");
    }
    const Json* function = find_member(value[i], "function");
    if (!function) return invalid_field(path + ".function", path + ".function is missing.");
    if (auto error = check_function(*function, path + ".function")) return *std::move(error);
  }
  return value;
}

Result<Json> read_functions(const Json& value, const RequestRules& rules) {
  if (auto error = check_tool_list(value, "functions", rules.limits)) return *std::move(error);
  Json tools = Json::array();
  for (size_t i = 0; i < value.size(); ++i) {
    if (auto error = check_function(value[i], element("functions", i))) return *std::move(error);
    tools.push_back(Json{{"type", "function"}, {"function", value[i]}});
  }
  return tools;
}

}  // namespace millrace::api
