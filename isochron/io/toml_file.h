// TOML from outside, within limits that keep a hostile file from taking memory: 1 MiB of text, 16 values inside one
// another, 64 dots in a line.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <toml++/toml.h>

namespace isochron::io {

/// The text of a file; `kind` is what errors call it: "cluster file". Reads no more than the limit and a byte. Throws
/// isochron::Error naming the file.
[[nodiscard]] std::string read_toml_text(const std::filesystem::path& path, std::string_view kind);

/// `file` is the name that errors carry. Throws std::invalid_argument: "FILE:LINE: …".
[[nodiscard]] toml::table parse_toml(std::string_view text, const std::string& file);

}  // namespace isochron::io
