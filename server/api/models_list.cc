#include "server/api/models_list.h"

#include "server/api/json_text.h"

namespace millrace::api {
namespace {

void append_model(std::string& out, std::string_view name, const ModelCard& card) {
  out += "{\"id\":";
  append_json_string(out, name);
  out += ",\"object\":\"model\",\"created\":" + std::to_string(card.created) +
         ",\"owned_by\":\"millrace\",\"root\":";
  append_json_string(out, card.root);
  out += ",\"parent\":null,\"max_model_len\":" + std::to_string(card.max_model_len) +
         ",\"permission\":[]}";
}

}  // namespace

std::string models_json(std::span<const std::string> names, const ModelCard& card) {
  std::string out = "{\"object\":\"list\",\"data\":[";
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) out += ',';
    append_model(out, names[i], card);
  }
  out += "]}";
  return out;
}

std::string model_json(std::string_view name, const ModelCard& card) {
  std::string out;
  append_model(out, name, card);
  return out;
}

Error unknown_model(std::string_view asked, std::span<const std::string> names) {
  constexpr size_t kShownBytes = 128;
  Error error;
  error.http_status = 404;
  error.type = "not_found_error";
  error.code = "model_not_found";
  error.param = "model";
  error.message =
      "model: \"" + std::string(asked.substr(0, kShownBytes)) + "\" does not exist; served are ";
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) error.message += ", ";
    error.message += '"' + names[i] + '"';
  }
  error.message += '.';
  return error;
}

}  // namespace millrace::api
