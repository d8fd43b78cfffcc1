#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include <unistd.h>

#include "isochron/cli/commands.h"
#include "isochron/cli/worker_program.h"
#include "isochron/core/error.h"

namespace isochron::cli {
namespace {

/// Does not return: this process becomes the worker.
[[noreturn]] void become_worker(const std::string& command, std::vector<std::string> arguments) {
  const std::string program = worker_program().string();
  arguments.insert(arguments.begin(), {program, command});
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& word : arguments) {
    pointers.push_back(word.data());
  }
  pointers.push_back(nullptr);
  ::execv(program.c_str(), pointers.data());
  throw Error("cannot start " + program + ": " + std::strerror(errno));
}

void add_worker_command(CLI::App& program, const std::string& name, const std::string& help) {
  CLI::App* const command = program.add_subcommand(name, help + " (see " + name + " --help)");
  // All arguments are the worker's, --help among them.
  command->set_help_flag();
  command->prefix_command();
  command->final_callback([command, name] { become_worker(name, command->remaining()); });
}

}  // namespace

void add_worker_commands(CLI::App& program) {
  add_worker_command(program, "train", "Train as one worker of a job, or alone");
  add_worker_command(program, "compare", "Train with several policies in turn on an emulated cluster");
  add_worker_command(program, "profile", "Measure what a model takes on this machine, for 'plan'");
}

}  // namespace isochron::cli
