// How `--help` lays out options: older names are not shown, and defaults stand behind the description, so that long
// ones do not break the columns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace isochron::cli {

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(26); }

  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

/// The commands that are not hidden.
[[nodiscard]] std::vector<std::string> command_names(const CLI::App& program);

/// "--policy" and so on, without older names.
[[nodiscard]] std::vector<std::string> option_names(const CLI::App& command);

/// The name that `word` is most likely a slip of; empty if it is like none of them.
[[nodiscard]] std::string similar_name(std::string_view word, const std::vector<std::string>& names);

}  // namespace isochron::cli
