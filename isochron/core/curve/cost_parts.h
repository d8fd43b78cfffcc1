// Tells apart what a worker's time goes into where samples cost differently: a part per step, one per sample, and one
// per unit of work, online.
//
//   t = per_step + per_sample b + per_work W + noise        for b samples of work W together
//
// Recursive least squares of relative errors, old readings fading by 1 % a step, with a ridge that draws the parts per
// step and per sample to nothing as long as the readings do not say otherwise, and none of the three below 0. What
// counts for a deal is the ratio per_sample / per_work: what a sample costs on top of its work, in work. O(1) a
// reading: sums for a system of three equations. Not thread-safe.
#pragma once

#include <array>
#include <span>

#include "isochron/core/state.h"

namespace isochron {

class CostParts {
 public:
  struct Estimate {
    double per_step = 0.0;    // seconds
    double per_sample = 0.0;  // seconds
    double per_work = 0.0;    // seconds
    /// The variance of per_sample / per_work, in units of the mean sample's work; 1 before any reading.
    double ratio_variance = 1.0;
  };

  /// `work` in units of the mean sample's; all three above 0.
  void add(double samples, double work, double seconds);

  [[nodiscard]] Estimate estimate() const;

  void exchange(StateExchange& state);

 private:
  // Sums over readings of products of (1, b, W) / t with one another and with 1.
  std::array<double, 6> products_{};  // 11, 1b, bb, 1W, bW, WW
  std::array<double, 3> targets_{};
  double readings_ = 0.0;
};

/// per_sample / per_work of workers of one kind, which share it: their estimates weighed by what their readings say.
[[nodiscard]] double pooled_ratio(std::span<const CostParts::Estimate> estimates);

}  // namespace isochron
