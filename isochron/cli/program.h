// What our programs share: commands, exit status, and the line that says what went wrong.
#pragma once

#include <functional>
#include <string>

#include <CLI/CLI.hpp>

namespace isochron::cli {

inline constexpr int kFailure = 1;
inline constexpr int kBadUsage = 2;

struct Program {
  std::string description;
  std::function<void(CLI::App&)> add_commands;
  /// Shows an error, whole lines with what the program will end with. Empty: on standard error.
  std::function<void(const std::string& text, int status)> complain;
};

/// Runs the command that `argv` names and returns what main should (docs/errors.md). A command whose status is neither
/// success nor failure throws CLI::RuntimeError with it.
[[nodiscard]] int run_program(const Program& program, int argc, char** argv);

}  // namespace isochron::cli
