// The subcommands of the binary. Each has one file, <name>_command.cc, whose adder registers the
// subcommand's options on `app` and, in the subcommand's final callback, leaves in `result` what is
// to be run. main() runs it after the whole command line has been parsed, on the main thread.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace millrace::app {

struct CommandResult {
  std::function<int()> run;  // returns the exit code; empty: nothing was chosen
};

void add_serve_command(CLI::App& app, CommandResult& result);
void add_chat_command(CLI::App& app, CommandResult& result);
void add_batch_command(CLI::App& app, CommandResult& result);
void add_bench_command(CLI::App& app, CommandResult& result);
void add_inspect_command(CLI::App& app, CommandResult& result);
void add_plan_command(CLI::App& app, CommandResult& result);

// Of `bench`: `bench` is that subcommand.
void add_bench_kernels(CLI::App& bench, CommandResult& result);
void add_bench_engine(CLI::App& bench, CommandResult& result);
void add_bench_serve(CLI::App& bench, CommandResult& result);

}  // namespace millrace::app
