// Numbers as the page reads them: base64 of little-endian floats, a third of the size of text and read in an instant.
// What is not finite, or too large for the type, becomes NaN.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace isochron::view {

/// A JSON string.
[[nodiscard]] std::string float_column(std::span<const double> values);   // 32 bits each
[[nodiscard]] std::string double_column(std::span<const double> values);  // 64 bits each

[[nodiscard]] std::string base64(std::string_view bytes);

}  // namespace isochron::view
