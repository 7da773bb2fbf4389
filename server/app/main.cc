#include <CLI/CLI.hpp>
#include <cstdio>

#include "server/app/commands.h"
#include "server/app/process_stats.h"

int main(int argc, char** argv) {
  using namespace millrace::app;
  CLI::App app("Millrace serves language models on x86 CPUs.", "millrace");
  app.set_version_flag("--version", std::string(kVersion));
  app.require_subcommand(1);
  CommandResult result;
  add_serve_command(app, result);
  add_chat_command(app, result);
  add_batch_command(app, result);
  add_bench_command(app, result);
  add_inspect_command(app, result);
  add_plan_command(app, result);
  // A word that is no subcommand would otherwise be reported as a missing one.
  const std::string first = argc > 1 ? argv[1] : "";
  std::string names;
  bool known = first.empty() || first[0] == '-';
  for (const CLI::App* command : app.get_subcommands({})) {
    known = known || command->get_name() == first;
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  if (!known) {
    std::fprintf(stderr, "millrace: '%s' is no subcommand; there are %s\n", first.c_str(),
                 names.c_str());
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  return result.run ? result.run() : 1;
}
