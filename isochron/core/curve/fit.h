// Time curves from measured points: the bent line that comes nearest, and the points made monotone.
#pragma once

#include <span>
#include <vector>

#include "isochron/core/curve/curve.h"

namespace isochron {

struct BentFit {
  Curve::BentLine line;
  double misfit = 0.0;  // root mean square of the relative errors at the points

  [[nodiscard]] Curve curve() const { return Curve::saturating(line.floor, line.fixed, line.slope, line.floor_slope); }
};

/// The bent line with the least squares of relative errors, t(b) = max(floor, fixed + slope b), none of the three below
/// 0. A floor must halve the squares of the straight line to be taken. At least one point; batches and seconds above 0.
/// O(n^2) for n points.
[[nodiscard]] BentFit fit_bent_line(std::span<const Curve::Point> points);

/// Points whose times decrease somewhere (noise) share the geometric mean of theirs: the nearest non-decreasing times
/// by least squares of their logarithms. In the order of their batches; seconds above 0. O(n).
[[nodiscard]] std::vector<Curve::Point> monotone(std::vector<Curve::Point> points);

}  // namespace isochron
