// How `--help` lays out options: older names are not shown, and defaults stand behind the description, so that long
// ones do not break the columns.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace isochron::cli {

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(26); }

  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

/// "simulate, policies, …": the commands that are not hidden.
[[nodiscard]] std::string command_names(const CLI::App& program);

}  // namespace isochron::cli
