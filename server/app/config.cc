#include "server/app/config.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <vector>

namespace millrace::app {

namespace {

bool is_meta_option(const std::string& key) {
  return key == "help" || key == "config" || key == "print-config";
}

// The keys that set an option: its long names, and MODEL's own.
std::vector<std::string> keys_of(const CLI::Option& option) {
  std::vector<std::string> keys = option.get_lnames();
  if (keys.empty() && option.get_positional()) {
    std::string name = option.get_name(true);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    keys.push_back(name);
  }
  return keys;
}

bool is_flag(const CLI::Option& option) { return option.get_items_expected_max() == 0; }
bool is_list(const CLI::Option& option) { return option.get_items_expected_max() > 1; }

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(',', begin)) != std::string::npos; begin = end + 1) {
    parts.push_back(text.substr(begin, end - begin));
  }
  parts.push_back(text.substr(begin));
  return parts;
}

// Kubernetes sets NAME_PORT=tcp://address for a service called NAME; such a value is not a setting.
bool is_service_link(const std::string& value) { return value.rfind("tcp://", 0) == 0; }

std::optional<std::string> read_environment(const std::string& key) {
  const char* value = std::getenv(environment_name(key).c_str());
  if (value == nullptr || is_service_link(value)) return std::nullopt;
  return std::string(value);
}

void set_option(CLI::Option& option, const std::string& key,
                const std::vector<std::string>& values) {
  for (const std::string& value : values) {
    option.add_result(is_flag(option) ? option.get_flag_value(key, value) : value);
  }
  option.run_callback();
}

using ConfigValues = std::map<std::string, std::vector<std::string>>;

ConfigValues read_config_file(const std::string& file) {
  ConfigValues values;
  if (file.empty()) return values;
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_file(file)) {
    // "++" and "--" mark where a section begins and ends.
    if (item.name == "++" || item.name == "--") continue;
    values[item.fullname()] = item.inputs;
  }
  return values;
}

std::string toml_value(const std::string& value) {
  if (value == "true" || value == "false") return value;
  char* end = nullptr;
  std::strtod(value.c_str(), &end);
  if (!value.empty() && *end == '\0') return value;
  std::string quoted = "\"";
  for (char c : value) {
    if (c == '"' || c == '\\') quoted.push_back('\\');
    quoted.push_back(c);
  }
  return quoted + "\"";
}

std::string toml_list(const std::vector<std::string>& values) {
  std::string text = "[";
  for (const std::string& value : values) {
    if (text.size() > 1) text += ", ";
    text += toml_value(value);
  }
  return text + "]";
}

}  // namespace

std::string environment_name(const std::string& key) {
  std::string name = "MILLRACE_";
  for (char c : key) {
    name.push_back(c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  }
  return name;
}

void add_config_flags(CLI::App& app, ConfigFlags& flags) {
  app.add_option("--config", flags.file, "Configuration file: TOML, one key per flag.");
  app.add_flag("--print-config", flags.print, "Print all settings with their values and exit.");
  app.option_defaults()->always_capture_default();
}

void one_value_per_flag(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (is_list(*option)) option->allow_extra_args(false);
  }
}

void resolve_settings(CLI::App& app, const ConfigFlags& flags) {
  ConfigFlags resolved = flags;
  if (resolved.file.empty()) resolved.file = read_environment("config").value_or("");
  ConfigValues file_values = read_config_file(resolved.file);
  for (CLI::Option* option : app.get_options()) {
    for (const std::string& key : keys_of(*option)) {
      if (is_meta_option(key)) continue;
      const auto in_file = file_values.find(key);
      std::optional<std::vector<std::string>> values;
      if (in_file != file_values.end()) {
        values = in_file->second;
        file_values.erase(in_file);
      }
      if (const std::optional<std::string> text = read_environment(key)) {
        values = is_list(*option) ? split_at_commas(*text) : std::vector<std::string>{*text};
      }
      if (values && option->count() == 0) set_option(*option, key, *values);
    }
  }
  if (!file_values.empty()) {
    throw CLI::ConfigError("The key \"" + file_values.begin()->first + "\" of " + resolved.file +
                           " is no setting of this command");
  }
}

std::string settings_text(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string> keys = keys_of(*option);
    if (keys.empty() || is_meta_option(keys.front())) continue;
    const std::string& key = keys.front();
    if (key == "api-key") {
      text += "# " + key + ": " + std::to_string(option->count()) + " set, not shown\n";
    } else if (option->count() > 0 && is_list(*option)) {
      text += key + " = " + toml_list(option->results()) + "\n";
    } else if (option->count() > 0) {
      text += key + " = " + toml_value(option->results().back()) + "\n";
    } else if (!option->get_default_str().empty() && !is_list(*option)) {
      text += key + " = " + toml_value(option->get_default_str()) + "\n";
    } else {
      text += "# " + key + ": default\n";
    }
  }
  return text;
}

}  // namespace millrace::app
