// Text tables for people.
#pragma once

#include <string>
#include <vector>

namespace isochron::cli {

/// Rows of cells in aligned columns, two spaces between: the first column to the left, the others to the right. All
/// rows have as many cells as the first.
[[nodiscard]] std::string format_table(const std::vector<std::vector<std::string>>& rows);

/// `value` with `digits` after the point, whatever the locale.
[[nodiscard]] std::string fixed(double value, int digits);

/// `text` broken between words into lines of at most `width` characters, each after the first behind `indent` spaces.
[[nodiscard]] std::string wrapped(const std::string& text, std::size_t width, std::size_t indent);

}  // namespace isochron::cli
