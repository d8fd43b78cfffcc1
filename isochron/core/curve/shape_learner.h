// Learns the shape of time curves from the moves that happen anyway.
//
// Only a change of batch size tells shapes apart, and only if it stands out of the noise: a move with |d log b| > 0.1
// and > 3 sigma. Each such move adds, for every candidate shape, half the squared misfit of d log t against d log h
// over its variance (raw consecutive differences: smoothed levels would make autocorrelated noise look like an
// overhead). Evidence is pooled over workers of one kind; of the shapes within 1.5 nats of the best the most linear
// is taken; a worker that contradicts its kind's shape by more than 4 nats keeps its own. Old evidence fades with
// every move, so that a workload that changes is learned anew. Cost: one pass over the grid for a worker that moved,
// nothing otherwise.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "isochron/core/curve/shape.h"
#include "isochron/core/state.h"

namespace isochron {

/// Candidate shapes for batches around `typical_batch` samples, the most linear first.
class ShapeGrid {
 public:
  static constexpr std::size_t kSteps = 6;
  static constexpr std::size_t kSize = kSteps * kSteps;

  explicit ShapeGrid(double typical_batch);
  [[nodiscard]] const Shape& operator[](std::size_t index) const { return shapes_[index]; }

 private:
  std::array<Shape, kSize> shapes_;
};

/// What one worker's moves say about each shape of the grid.
class ShapeEvidence {
 public:
  /// Before any move: a device that has fixed costs in every step, such as a GPU that launches kernels, is not expected
  /// to have none.
  void expect_overhead(const ShapeGrid& grid);

  /// Whether a move is large enough to tell shapes apart.
  [[nodiscard]] static bool tells(double before, double after, double noise);

  /// Weighs a move from `before` to `after` samples in which the log of time grew by `log_time_change`;
  /// `noise` is the variance of a single log time. Returns whether the move was large enough to tell.
  bool weigh(const ShapeGrid& grid, double before, double after, double log_time_change, double noise);

  /// Variance of log time that a move of `log_batch_change` adds because the shape is not certain.
  [[nodiscard]] double doubt(double log_batch_change) const;

  [[nodiscard]] const std::array<double, ShapeGrid::kSize>& misfit() const { return misfit_; }
  void exchange(StateExchange& state);

 private:
  std::array<double, ShapeGrid::kSize> misfit_{};  // nats
  double information_ = 0.0;
};

/// Nats within which the more linear shape is preferred.
inline constexpr double kShapeTolerance = 1.5;
/// The most that a single move can say against a shape, in nats.
inline constexpr double kMostOfAMove = 4.5;

/// The most linear shape (lowest index) whose misfit is within `tolerance` of the least.
std::size_t most_linear(std::span<const double> misfit, double tolerance = kShapeTolerance);

/// The shape of every worker, given each one's evidence and kind: the kind's, or its own where it contradicts it.
std::vector<std::size_t> choose_shapes(
    std::span<const ShapeEvidence* const> evidence,
    std::span<const std::string* const> kinds,
    double tolerance = kShapeTolerance);

}  // namespace isochron
