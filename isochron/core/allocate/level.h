// The level of the water: the time T by which the workers finish about as many samples as there are to share.
//
// The number of samples finished within T is a staircase with jumps where a plateau ends; a secant, kept inside a
// bracket and helped by bisection, finds T in a few passes. Approximate by design: the caller counts exactly.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isochron/core/allocate/units.h"

namespace isochron::detail {

class LevelSearch {
 public:
  /// `need`: samples beyond the lower bounds, at most what the bounds hold.
  LevelSearch(std::span<const Slot> slots, std::span<const UnitBounds> bounds, std::int64_t need);

  /// A level at which at most `need` samples, up to rounding, and nearly as many are finished.
  [[nodiscard]] double level() const;

  /// About how many units worker `k` finishes within `seconds`; neither rounded nor bounded.
  [[nodiscard]] double guess_units(std::size_t k, double seconds) const;

 private:
  [[nodiscard]] double samples_within(double seconds) const;

  // A worker finishes min((T - start) rate, (T - flat_start) flat_rate) units within T, between 0 and `more`, of `unit`
  // samples each. Arrays side by side, as long as a multiple of the loop's width.
  struct Lanes {
    std::vector<double> start, rate, flat_start, flat_rate, more, unit;
  };

  std::span<const Slot> slots_;
  std::span<const UnitBounds> bounds_;
  double need_;
  double first_guess_ = 0.0;
  double handful_ = 0.0;
  double total_rate_ = 0.0;  // samples per second, of all workers but the tables
  Lanes lanes_;
  std::vector<std::size_t> tables_;
};

}  // namespace isochron::detail
