// Lengths of samples, as a text file has them: one number a line.
#pragma once

#include <filesystem>
#include <vector>

namespace isochron::io {

/// At least one, each finite and 0 or more; blank lines do not count. Throws isochron::Error if the file cannot be
/// read, and std::invalid_argument naming file and line on anything else than a number.
[[nodiscard]] std::vector<double> read_lengths(const std::filesystem::path& path);

}  // namespace isochron::io
