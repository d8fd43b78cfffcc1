// The --json option that every command has: a file, or - for standard output.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "isochron/io/output_file.h"

namespace isochron::cli {

class JsonOutput {
 public:
  /// Adds the option; this must outlive the parsing.
  void add_option(CLI::App& command);

  /// Before the work starts, so that a file that cannot be written is known at once. Throws std::invalid_argument.
  void open();
  /// Nothing else may go there.
  [[nodiscard]] bool takes_standard_output() const { return target_ == "-"; }
  [[nodiscard]] const std::string& target() const { return target_; }

  /// {"command", "version", …, "results"}: the fields of `details` come between. Does nothing without the option.
  void write(const std::string& command, const nlohmann::ordered_json& details, const nlohmann::ordered_json& results);

 private:
  std::string target_;
  std::unique_ptr<io::OutputFile> file_;
};

/// Opens `path`, given with `option`. A path that cannot be written is bad input: std::invalid_argument names both.
[[nodiscard]] std::unique_ptr<io::OutputFile> open_output(const std::string& option, const std::string& path);

/// Throws std::invalid_argument if two of the files are one, since they would overwrite each other; "" is none.
void check_distinct_outputs(std::vector<std::string> files);

}  // namespace isochron::cli
