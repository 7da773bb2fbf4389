// Where a setting comes from: the command line, else the environment (MILLRACE_<FLAG>), else a
// configuration file (TOML, one key per flag), else the default. The only place that reads the
// environment. Used while the command line is parsed, by the main thread.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace millrace::app {

struct ConfigFlags {
  std::string file;
  bool print = false;
};

// Adds --config and --print-config to a subcommand. To be called before its other options are
// added, so that their defaults can be printed.
void add_config_flags(CLI::App& app, ConfigFlags& flags);

// Makes each repeatable option take one value each time it is given, so that it never swallows a
// positional argument behind it. To be called after the options are added.
void one_value_per_flag(CLI::App& app);

// Gives every option that the command line has not set its value from the environment or the file.
// A key of the file that names no flag is an error. Throws CLI::ParseError: to be called first in
// the subcommand's callback, which runs inside the parse.
void resolve_settings(CLI::App& app, const ConfigFlags& flags);

// All settings with their values, as a configuration file. Keys are not shown.
std::string settings_text(const CLI::App& app);

// MILLRACE_MAX_NUM_SEQS for max-num-seqs.
std::string environment_name(const std::string& key);

}  // namespace millrace::app
