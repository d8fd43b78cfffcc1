// What policies learn is kept in one list per quantity, in the roster's order. These helpers carry such lists over a
// change of the roster, by worker id, and through saved states.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "isochron/core/state.h"
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

/// Like StateExchange::field, for a list that has one entry per worker before and after.
template <class T>
void exchange_per_worker(StateExchange& state, std::string_view name, std::vector<T>& values) {
  const std::size_t workers = values.size();
  state.field(name, values);
  if (values.size() != workers) {
    throw std::invalid_argument(
        "state field " + std::string(name) + " has " + std::to_string(values.size()) +
        " numbers; permitted: " + std::to_string(workers) + ", one for every worker");
  }
}

}  // namespace isochron
