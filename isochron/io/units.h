// Quantities as people write them: a number with its unit and nothing between.
#pragma once

#include <string_view>

namespace isochron::io {

/// "100mbit" in bytes per second. Units: bit, kbit, mbit, gbit and byte, kbyte, mbyte, gbyte, all per second, in powers
/// of 1000. Throws std::invalid_argument naming the value and what is permitted; the rate must be above 0.
[[nodiscard]] double parse_rate(std::string_view text);

/// "2ms" in seconds. Units: s, ms, us, ns. Throws like parse_rate; 0 is permitted.
[[nodiscard]] double parse_duration(std::string_view text);

/// "25mbyte" in bytes. Units: byte, kbyte, mbyte, gbyte, in powers of 1000, or none for bytes. Throws like parse_rate;
/// 0 is permitted.
[[nodiscard]] double parse_size(std::string_view text);

}  // namespace isochron::io
