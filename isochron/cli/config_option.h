// The --config option: a TOML file whose keys are the command's long options, without their dashes. What the command
// line says beats the file.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace isochron::cli {

void add_config_option(CLI::App& command, std::string& file);

/// Sets the options that the command line left alone; does nothing without a file. Call it when the command line has
/// been read, before anything is done with the options. Throws std::invalid_argument: "FILE:LINE: …".
void apply_config(CLI::App& command, const std::string& file);

}  // namespace isochron::cli
