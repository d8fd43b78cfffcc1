// Tells apart what a worker's time goes into where samples cost differently: a part per step, one per sample, and one
// per unit of work, online.
//
//   t = per_step + per_work (W + ratio b) + noise        for b samples of work W together
//
// What counts for a deal is the ratio: what a sample costs on top of its work, in work. Workers of one kind share it;
// per_step and per_work are each worker's own, and not below 0. The ratio is the one of the least squares of relative
// errors over all workers of the kind, each weighed by its own noise, where old readings fade by 1 % a step, with a
// ridge that draws it and the parts per step to nothing as long as the readings do not say otherwise. (Estimates of
// single workers, none below 0, would come out too high on average.) O(1) a reading, O(K) for the ratio of K workers.
// Not thread-safe.
#pragma once

#include <array>
#include <span>

#include "isochron/core/state.h"

namespace isochron {

class CostParts {
 public:
  /// `work` in units of the mean sample's; all three above 0.
  void add(double samples, double work, double seconds);

  /// How many there are, less what has faded.
  [[nodiscard]] double readings() const { return readings_; }

  struct Fit {
    double per_step = 0.0;  // seconds
    double per_work = 0.0;  // seconds
    double squares = 0.0;   // of relative errors that are left, with what the ridge adds
  };
  /// The best for this ratio, if relative errors have the variance `noise`. There are readings.
  [[nodiscard]] Fit fit(double ratio, double noise) const;

  void exchange(StateExchange& state);

 private:
  // Sums over readings of products of (1, b, W) / t with one another and with 1.
  std::array<double, 6> products_{};  // 11, 1b, bb, 1W, bW, WW
  std::array<double, 3> targets_{};
  double readings_ = 0.0;
};

/// What a sample costs workers of one kind on top of its work, in works of the mean sample: 0 to 8.
[[nodiscard]] double pooled_ratio(std::span<const CostParts* const> workers);

}  // namespace isochron
