// What policies learn is kept in one list per quantity, in the roster's order. These helpers carry such lists over a
// change of the roster, by worker id.
#pragma once

#include <cstddef>
#include <vector>

#include "isochron/core/worker.h"

namespace isochron {

/// Where the workers of a new roster stood in the old one.
class Succession {
 public:
  static constexpr std::size_t kNewcomer = static_cast<std::size_t>(-1);

  Succession(const std::vector<WorkerId>& before, const Roster& after);

  /// The place in the old roster of the worker at `place` in the new one, or kNewcomer.
  [[nodiscard]] std::size_t predecessor(std::size_t place) const { return predecessors_[place]; }

  /// `values` in the new order; newcomers get `fresh`.
  template <class T>
  [[nodiscard]] std::vector<T> carry_over(const std::vector<T>& values, const T& fresh) const {
    std::vector<T> result;
    result.reserve(predecessors_.size());
    for (const std::size_t place : predecessors_) {
      result.push_back(place == kNewcomer ? fresh : values[place]);
    }
    return result;
  }

 private:
  std::vector<std::size_t> predecessors_;
};

std::vector<WorkerId> ids_of(const Roster& roster);

}  // namespace isochron
