// A State as Python's bytes, which travel in a state_dict.
#pragma once

#include <string_view>

#include <nanobind/nanobind.h>

#include "isochron/core/state.h"

namespace isochron::python {

inline nanobind::bytes to_bytes(const State& state) {
  const std::string text = state.serialize();
  return nanobind::bytes(text.data(), text.size());
}

inline State from_bytes(const nanobind::bytes& bytes) {
  return State::parse(std::string_view(bytes.c_str(), bytes.size()));
}

}  // namespace isochron::python
