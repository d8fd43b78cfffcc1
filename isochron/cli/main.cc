#include <exception>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

#include "isochron/cli/commands.h"
#include "isochron/cli/help.h"

namespace isochron::cli {
namespace {

constexpr int kFailure = 1;
constexpr int kBadUsage = 2;

int bad_usage(const CLI::App& program, const std::string& message) {
  const auto commands = program.get_subcommands();
  const std::string command = commands.empty() ? "" : commands.front()->get_name() + " ";
  std::cerr << "isochron: " << message << "\nTry 'isochron " << command << "--help'\n";
  return kBadUsage;
}

/// What the command line holds beyond what is known.
std::string unexpected(const CLI::App& program) {
  const std::string word = program.remaining(true).front();
  if (word.starts_with("-")) {
    return "unknown option '" + word + "'";
  }
  return program.get_subcommands().empty() ? "unknown command '" + word + "'; permitted: " + command_names(program)
                                           : "unexpected argument '" + word + "'";
}

int run(CLI::App& program, int count, char** words) {
  try {
    program.parse(count, words);
    if (program.get_subcommands().empty()) {
      return bad_usage(program, "no command; permitted: " + command_names(program));
    }
  } catch (const CLI::Success& request) {
    program.exit(request);  // prints the help or the version
  } catch (const CLI::RuntimeError& status) {
    return status.get_exit_code();
  } catch (const CLI::ExtrasError&) {
    return bad_usage(program, unexpected(program));
  } catch (const CLI::ParseError& error) {
    return bad_usage(program, error.what());
  } catch (const std::invalid_argument& error) {
    return bad_usage(program, error.what());
  }
  if (!std::cout.flush()) {
    std::cerr << "isochron: cannot write to standard output\n";
    return kFailure;
  }
  return 0;
}

}  // namespace
}  // namespace isochron::cli

int main(int count, char** words) {
  try {
    CLI::App program("Trains one model across unequal machines at the speed of their sum.", "isochron");
    program.formatter(std::make_shared<isochron::cli::HelpFormatter>());  // before the commands, which inherit it
    program.set_version_flag("--version", "isochron " ISOCHRON_VERSION);
    program.footer("Exit status: 0 done, 1 failed, 2 bad usage or bad input.");
    isochron::cli::add_simulate(program);
    isochron::cli::add_policies(program);
    isochron::cli::add_clusters(program);
    isochron::cli::add_launch(program);
    isochron::cli::add_enter(program);
    return isochron::cli::run(program, count, words);
  } catch (const std::exception& error) {
    std::cerr << "isochron: " << error.what() << '\n';
    return isochron::cli::kFailure;
  }
}
