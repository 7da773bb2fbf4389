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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  return result.run ? result.run() : 1;
}
