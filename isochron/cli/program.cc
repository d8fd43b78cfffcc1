#include "isochron/cli/program.h"

#include <exception>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "isochron/cli/help.h"
#include "isochron/core/error.h"

namespace isochron::cli {
namespace {

std::string suggestion(std::string_view word, const std::vector<std::string>& names) {
  const std::string near = similar_name(word, names);
  return near.empty() ? "" : "; did you mean " + near + "?";
}

/// What the command line holds beyond what is known.
std::string unexpected(const CLI::App& app) {
  const std::string word = app.remaining(true).front();
  const auto commands = app.get_subcommands();
  if (word.starts_with('-')) {
    return "unknown option '" + word + "'" +
           suggestion(word.substr(0, word.find('=')), option_names(commands.empty() ? app : *commands.front()));
  }
  return commands.empty() ? "unknown command '" + word + "'; permitted: " + joined(command_names(app), ", ") +
                                suggestion(word, command_names(app))
                          : "unexpected argument '" + word + "'";
}

/// Runs the command. Bad usage is std::invalid_argument, whatever CLI11 calls it.
void parse_and_run(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {
    if (app.get_subcommands().empty() && !app.remaining(true).empty()) {
      throw std::invalid_argument(unexpected(app));
    }
    app.exit(request);  // prints the help or the version
    return;
  } catch (const CLI::RuntimeError&) {
    throw;
  } catch (const CLI::ExtrasError&) {
    throw std::invalid_argument(unexpected(app));
  } catch (const CLI::ParseError& error) {
    throw std::invalid_argument(error.what());
  }
  if (app.get_subcommands().empty()) {
    throw std::invalid_argument("no command; permitted: " + joined(command_names(app), ", "));
  }
}

std::string hint(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return "Try 'isochron " + (commands.empty() ? "" : commands.front()->get_name() + " ") + "--help'\n";
}

}  // namespace

int run_program(const Program& program, int argc, char** argv) {
  CLI::App app(program.description, "isochron");
  const auto complain = [&](const std::string& message, int status, const std::string& more = "") {
    const std::string text = "isochron: " + message + "\n" + more;
    if (program.complain) {
      program.complain(text, status);
    } else {
      std::cerr << text;
    }
    return status;
  };
  try {
    app.formatter(std::make_shared<HelpFormatter>());  // before the commands, which inherit it
    app.set_version_flag("--version", "isochron " ISOCHRON_VERSION);
    app.footer("Exit status: 0 done, 1 failed, 2 bad usage or bad input.");
    program.add_commands(app);
    parse_and_run(app, argc, argv);
  } catch (const CLI::RuntimeError& status) {
    return status.get_exit_code();
  } catch (const std::invalid_argument& error) {
    return complain(error.what(), kBadUsage, hint(app));
  } catch (const std::exception& error) {
    return complain(error.what(), kFailure);
  }
  return std::cout.flush() ? 0 : complain("cannot write to standard output", kFailure);
}

}  // namespace isochron::cli
