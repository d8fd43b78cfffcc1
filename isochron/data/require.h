// The pattern of every message about a value: "NAME is VALUE; permitted: LEAST to MOST".
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace isochron::data {

/// Throws std::invalid_argument unless `value` lies within the two bounds.
inline void require_between(std::string_view name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most) {
    throw std::invalid_argument(
        std::string(name) + " is " + std::to_string(value) + "; permitted: " + std::to_string(least) + " to " +
        std::to_string(most));
  }
}

}  // namespace isochron::data
