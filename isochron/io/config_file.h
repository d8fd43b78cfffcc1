// A configuration file: options of a command as TOML, one key each, such as `global-batch = 256`.
//
// Whatever the bytes, the answer is a list of texts as they could stand on a command line, or std::invalid_argument
// with "FILE:LINE: …". What the keys mean is the command's business. toml_file.h has the limits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace isochron::io {

struct ConfigEntry {
  std::string key;
  std::string value;  // text as it is, numbers in their shortest form, "true" or "false"
  std::string place;  // "FILE:LINE: ", for errors
};

/// In alphabetical order.
[[nodiscard]] std::vector<ConfigEntry> parse_config(std::string_view text, const std::string& file);

/// Throws isochron::Error if the file cannot be read.
[[nodiscard]] std::vector<ConfigEntry> read_config_file(const std::filesystem::path& path);

}  // namespace isochron::io
