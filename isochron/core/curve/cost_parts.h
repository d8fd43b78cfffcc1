// Tells apart what a worker's time goes into where samples cost differently: a part per step, one per sample, one per
// unit of work, and where attention is part of the work one per square of a length, online.
//
//   t = per_step + per_work (W + per_square S + per_sample b) + noise    for b samples of work W and squares S together
//
// What counts for a deal are the ratios: what a sample costs on top of its work, and what the squares cost, both in
// work. Workers of one kind share per_sample, all workers share per_square, which is the model's; per_step and per_work
// are each worker's own, and not below 0. A ratio is the one of the least squares of relative errors over its workers,
// each weighed by its own noise, where old readings fade by 1 % a step, with a ridge that draws it and the parts per
// step to nothing as long as the readings do not say otherwise. (Estimates of single workers, none below 0, would come
// out too high on average.) A worker whose speed has changed is to be forgotten: readings of two speeds, with the
// shares that each of them got, look like costs that there are not. O(1) a reading, O(K) for a ratio of K workers. Not
// thread-safe.
#pragma once

#include <array>
#include <span>

#include "isochron/core/state.h"

namespace isochron {

/// What costs come on top of a share's work: per sample in works of the mean sample, and per mean square likewise.
struct CostRatios {
  double per_sample = 0.0;
  double per_square = 0.0;
};

class CostParts {
 public:
  /// `work` in units of the mean sample's, `squares` in units of the mean square; the first three are above 0.
  void add(double samples, double work, double seconds, double squares = 0.0);

  /// Whether a reading is so far from what the others say that the worker must have changed; five standard deviations
  /// and 15 %, if there are enough to say so.
  [[nodiscard]] bool contradict(
      double samples, double work, double seconds, double squares, const CostRatios& ratios) const;

  /// How many there are, less what has faded.
  [[nodiscard]] double readings() const { return readings_; }

  struct Fit {
    double per_step = 0.0;  // seconds
    double per_work = 0.0;  // seconds
    double squares = 0.0;   // of relative errors that are left, with what the ridge adds
  };
  /// The best for these ratios, if relative errors have the variance `noise`. There are readings.
  [[nodiscard]] Fit fit(const CostRatios& ratios, double noise) const;

  void exchange(StateExchange& state);

 private:
  // Sums over readings of products of (1, b, W, S) / t with one another and with 1.
  std::array<double, 10> products_{};  // 11, 1b, bb, 1W, bW, WW, 1S, bS, WS, SS
  std::array<double, 4> targets_{};
  double readings_ = 0.0;
};

/// What a sample costs workers of one kind on top of its work, in works of the mean sample: 0 to 8. `per_square` is
/// what the squares of lengths cost.
[[nodiscard]] double pooled_ratio(std::span<const CostParts* const> workers, double per_square = 0.0);

/// A worker's readings, with what is known of the costs so far.
struct KnownParts {
  const CostParts* parts = nullptr;
  CostRatios ratios;
};

/// What the mean square of a length costs all workers, in works of the mean sample: 0 to 64.
[[nodiscard]] double pooled_square_ratio(std::span<const KnownParts> workers);

}  // namespace isochron
