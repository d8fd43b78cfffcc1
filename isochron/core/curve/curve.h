// How long a worker computes for a batch: t(b), in seconds, non-decreasing in b.
//
// Two families cover what workers do. A bent line, t(b) = max(floor + floor_slope b, fixed + slope b), is linear (floor
// and fixed zero), affine (a CPU with a cost per step) or saturating (a GPU: flat until it is full, then linear). A
// table of measured points, joined by straight lines, covers the rest. A batch of 0 takes 0 seconds: a worker without
// samples skips the step. Values; safe to share between threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

namespace isochron {

/// An upper bound that does not bind.
inline constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

class Curve {
 public:
  struct Point {
    double batch = 0.0;
    double seconds = 0.0;
  };

  /// A free worker: no time at all. Useful only as a place holder.
  Curve() = default;

  static Curve linear(double seconds_per_sample);
  static Curve affine(double fixed_seconds, double seconds_per_sample);
  /// Flat at `floor_seconds` until fixed + slope b overtakes it; `floor_slope` tilts the flat part.
  static Curve saturating(
      double floor_seconds, double fixed_seconds, double seconds_per_sample, double floor_slope = 0.0);
  /// Measured points with strictly increasing positive batches and non-decreasing times, at least one. Between points
  /// the curve is linear; below the first it is flat at the first point's time; beyond the last it goes on with the
  /// slope of the last segment (of the line through the origin when there is one point only).
  static Curve table(std::vector<Point> points);

  /// Time for a finite `batch` >= 0; 0 for a batch of 0. Non-decreasing in spite of rounding.
  [[nodiscard]] double seconds(double batch) const {
    if (batch <= 0.0) {
      return 0.0;
    }
    if (is_table()) {
      return table_seconds(batch);
    }
    return std::max(line_.floor + line_.floor_slope * batch, line_.fixed + line_.slope * batch);
  }

  /// The largest real batch that takes at most `seconds`: 0 if none does, +infinity if every batch does. Rounded
  /// downwards: seconds(capacity(s)) <= s for s >= 0.
  [[nodiscard]] double capacity(double seconds) const;

  /// The same curve on a machine that takes `factor` > 0 times as long.
  [[nodiscard]] Curve scaled(double factor) const;

  /// The same curve over batches counted in units of `unit` > 0: its time for n is this one's for n units.
  [[nodiscard]] Curve in_units_of(double unit) const;

  /// The bent line's parameters, which the allocator reads for speed. Not for tables.
  struct BentLine {
    double floor = 0.0;
    double floor_slope = 0.0;
    double fixed = 0.0;
    double slope = 0.0;
  };
  [[nodiscard]] bool is_table() const { return table_ != nullptr; }
  [[nodiscard]] const BentLine& bent_line() const { return line_; }

 private:
  [[nodiscard]] double table_seconds(double batch) const;

  BentLine line_;
  std::shared_ptr<const std::vector<Point>> table_;
};

}  // namespace isochron
