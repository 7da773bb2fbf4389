// `millrace bench`: what is measured is chosen by a subcommand of its own, each in one file,
// bench_<name>_command.cc.
#include <CLI/CLI.hpp>

#include "server/app/commands.h"

namespace millrace::app {

void add_bench_command(CLI::App& app, CommandResult& result) {
  CLI::App* bench = app.add_subcommand("bench", "Measure against the bounds of this machine");
  bench->require_subcommand(1);
  add_bench_kernels(*bench, result);
  add_bench_engine(*bench, result);
  add_bench_serve(*bench, result);
}

}  // namespace millrace::app
