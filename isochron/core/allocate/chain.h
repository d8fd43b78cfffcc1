// Splits over workers whose granularities divide one another, say 1, 8 and 16.
//
// A level T is feasible if the units that finish by then can add up to the batch. Because each granularity divides the
// next, units of one can be bundled into units of the next without loss, so it is enough to count from the smallest
// granularity up: of n units, (need mod q) are used as they are and the rest makes (n - need mod q) / q bundles.
// Feasibility is monotone in T; bisection over the floating-point numbers finds the smallest feasible T exactly.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isochron/core/allocate/units.h"

namespace isochron::detail {

/// The distinct granularities, ascending. Throws std::invalid_argument naming two that do not divide one another.
std::vector<std::int64_t> granularity_chain(std::span<const Slot> slots);

class Chain {
 public:
  Chain(std::span<const Slot> slots, std::vector<std::int64_t> granularities, std::int64_t global_batch);

  /// Whether a legal split exists that finishes within `seconds`.
  [[nodiscard]] bool feasible_within(double seconds) const;

  /// The samples that the workers of each granularity take together in an optimal split.
  [[nodiscard]] std::vector<std::int64_t> optimal_totals() const;

 private:
  /// Units beyond the lower bounds that each granularity can finish within `seconds`; empty if some worker cannot even
  /// finish its lower bound.
  [[nodiscard]] std::vector<std::int64_t> units_within(double seconds) const;
  [[nodiscard]] double smallest_feasible() const;

  std::span<const Slot> slots_;
  std::vector<std::int64_t> granularities_;
  std::vector<std::size_t> rung_;    // of each slot: the index of its granularity
  std::vector<UnitBounds> bounds_;   // of each slot
  std::vector<std::int64_t> first_;  // of each granularity: samples that its lower bounds take
  std::int64_t remainder_ = 0;       // global batch mod the smallest granularity
  std::int64_t need_ = 0;            // samples beyond the lower bounds, the remainder excluded; negative: infeasible
};

}  // namespace isochron::detail
