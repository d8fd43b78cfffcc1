// The names of a replica's options, as every front end spells them.
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#include "isochron/core/replica/replica.h"

namespace isochron {
namespace {

// In the order of their enumerations.
constexpr std::array<std::string_view, 2> kWeightings = {"exact", "mean"};
constexpr std::array<std::string_view, 4> kOnNonFinite = {"stop", "skip", "rollback", "ignore"};
constexpr std::array<std::string_view, 5> kActions = {"take", "redo", "leave-out", "roll-back", "stop"};

template <class Enumeration, std::size_t Count>
Enumeration parse(const std::array<std::string_view, Count>& names, const char* option, std::string_view name) {
  std::string permitted;
  for (std::size_t i = 0; i < Count; ++i) {
    if (names[i] == name) {
      return static_cast<Enumeration>(i);
    }
    permitted += (i == 0 ? "" : ", ") + std::string(names[i]);
  }
  throw std::invalid_argument(std::string(option) + " is '" + std::string(name) + "'; permitted: " + permitted);
}

}  // namespace

std::string_view to_string(Weighting weighting) {
  return kWeightings[static_cast<std::size_t>(weighting)];
}

Weighting parse_weighting(std::string_view name) {
  return parse<Weighting>(kWeightings, "weighting", name);
}

std::string_view to_string(OnNonFinite on_non_finite) {
  return kOnNonFinite[static_cast<std::size_t>(on_non_finite)];
}

OnNonFinite parse_on_non_finite(std::string_view name) {
  return parse<OnNonFinite>(kOnNonFinite, "on_non_finite", name);
}

std::string_view to_string(StepAction action) {
  return kActions[static_cast<std::size_t>(action)];
}

}  // namespace isochron
