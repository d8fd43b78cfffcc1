// Splits over workers whose granularities divide one another, say 1, 8 and 16.
//
// A level T is feasible if the units that finish by then can add up to the batch. Because each granularity divides the
// next, units of one can be bundled into units of the next without loss, so it is enough to count from the smallest
// granularity up: of n units, (need mod q) are used as they are and the rest makes (n - need mod q) / q bundles.
// Feasibility is monotone in T, so the workers start at a level just too low and then finish units one by one, in the
// order of time, until the level is feasible.
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

  /// Whether a legal split exists, whatever the time.
  [[nodiscard]] bool feasible();

  /// The samples that the workers of each granularity take together in an optimal split; the problem must be feasible.
  std::vector<std::int64_t> optimal_totals();

 private:
  /// How far a worker gets within a level.
  struct Reach {
    std::int64_t units = 0;  // beyond its lower bound
    bool remainder = false;  // and the remainder on top
  };

  void reach(std::size_t k, double seconds, double guess);
  [[nodiscard]] bool takes_remainder(std::size_t k) const { return remainder_ > 0 && rung_[k] == 0; }
  [[nodiscard]] bool level_feasible() const;
  [[nodiscard]] double next_seconds(std::size_t k) const;
  void start_below_optimum();
  void advance_to_optimum();

  std::span<const Slot> slots_;
  std::vector<std::int64_t> granularities_;
  std::int64_t remainder_ = 0;         // global batch mod the smallest granularity
  std::int64_t need_ = 0;              // samples beyond the lower bounds, the remainder excluded; negative: infeasible
  std::vector<std::size_t> rung_;      // of each slot: the index of its granularity
  std::vector<UnitBounds> bounds_;     // of each slot
  std::vector<Reach> reach_;           // of each slot, at the current level
  std::vector<std::int64_t> first_;    // of each granularity: samples that its lower bounds take
  std::vector<std::int64_t> units_;    // of each granularity: units reached beyond the lower bounds
  std::int64_t remainder_places_ = 0;  // workers that reach the remainder
};

}  // namespace isochron::detail
