// A state field whose length is given by the configuration, not by the state.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "isochron/core/state.h"

namespace isochron {

/// Throws std::invalid_argument if the state comes from an object with another number of `values`.
inline void fixed_field(StateExchange& state, std::string_view name, std::vector<double>& values) {
  const std::size_t length = values.size();
  state.field(name, values);
  if (values.size() != length) {
    throw std::invalid_argument(
        "state field " + std::string(name) + " has " + std::to_string(values.size()) +
        " numbers; permitted: " + std::to_string(length));
  }
}

}  // namespace isochron
