#include "engine/load/hf_text.h"

#include "engine/load/json_fields.h"
#include "engine/load/mapped_file.h"

namespace millrace {
namespace {

constexpr uint64_t kMaxTemplateBytes = uint64_t{4} << 20;

std::string config_path(const std::string& folder) { return folder + "/tokenizer_config.json"; }

}  // namespace

StatusOr<std::string> hf_chat_template(const std::string& folder,
                                       const std::string& tokenizer_config) {
  StatusOr<std::string> file = read_text_file(folder + "/chat_template.jinja", kMaxTemplateBytes);
  if (file.ok() || !absl::IsNotFound(file.status())) return file;
  if (tokenizer_config.empty()) return std::string();
  MR_ASSIGN_OR_RETURN(const nlohmann::json json,
                      parse_json_object(tokenizer_config, config_path(folder)));
  const JsonFields fields(json, config_path(folder));
  const nlohmann::json* value = fields.find("chat_template");
  if (value == nullptr) return std::string();
  if (value->is_string()) return value->get<std::string>();
  if (!value->is_array()) {
    return fields.error("chat_template", "must be a string or a list of named templates");
  }
  for (const nlohmann::json& entry : *value) {
    if (!entry.is_object()) {
      return fields.error("chat_template", "must be a string or a list of named templates");
    }
    const JsonFields named(entry, config_path(folder) + ": chat_template");
    MR_ASSIGN_OR_RETURN(const auto name, named.string("name"));
    MR_ASSIGN_OR_RETURN(const auto text, named.string("template"));
    if (name.value_or("") == "default" && text) return *text;
  }
  return std::string();
}

StatusOr<std::vector<std::pair<std::string, std::string>>> hf_special_token_texts(
    const std::string& folder, const std::string& tokenizer_config) {
  std::vector<std::pair<std::string, std::string>> texts;
  if (tokenizer_config.empty()) return texts;
  MR_ASSIGN_OR_RETURN(const nlohmann::json json,
                      parse_json_object(tokenizer_config, config_path(folder)));
  const JsonFields fields(json, config_path(folder));
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token",
                           "cls_token", "mask_token"}) {
    const nlohmann::json* value = fields.find(name);
    if (value == nullptr) continue;
    // A plain text, or an added-token object around it.
    if (value->is_object() && value->contains("content")) value = &(*value)["content"];
    if (!value->is_string()) return fields.error(name, "must be a string or hold \"content\"");
    texts.emplace_back(name, value->get<std::string>());
  }
  return texts;
}

}  // namespace millrace
