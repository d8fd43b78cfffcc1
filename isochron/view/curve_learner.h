// Time curves t(b) = s h(b) from the steps of a run, learned as the policy `isochron` does, whatever policy ran: shapes
// from changes of the batch size, pooled over workers of one kind (core/curve/shape_learner.h), and scales from the
// last steps. O(workers) per step. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "isochron/core/curve/curve.h"
#include "isochron/core/curve/shape_learner.h"

namespace isochron::view {

class CurveLearner {
 public:
  /// `typical_batch` (> 0) is the scale of the candidate shapes: samples of a worker in a step.
  explicit CurveLearner(double typical_batch) : grid_(typical_batch) {}

  /// A step of the worker at `place`; what cannot have been measured is ignored.
  void observe(std::size_t place, double batch, double seconds);

  /// From half the smallest to a quarter beyond the largest batch seen, with a point at the bend; empty if the worker
  /// never reported. `kinds` has one entry per worker.
  [[nodiscard]] std::vector<std::vector<Curve::Point>> curves(const std::vector<std::string>& kinds) const;

 private:
  static constexpr std::size_t kRecent = 32;

  struct Track {
    ShapeEvidence evidence;
    double last_batch = 0.0;  // 0: none yet
    double last_log_seconds = 0.0;
    double noise = 0.0025;  // variance of log time; 5 % until better is known
    double smallest = 0.0;
    double largest = 0.0;
    std::array<Curve::Point, kRecent> recent;
    std::size_t seen = 0;
  };
  [[nodiscard]] std::vector<Curve::Point> draw(const Track& track, const Shape& shape) const;

  ShapeGrid grid_;
  std::vector<Track> tracks_;
};

}  // namespace isochron::view
