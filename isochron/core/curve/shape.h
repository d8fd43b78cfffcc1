// The shape of a time curve, without its scale: t(b) = s h(b) with
//   h(b) = overhead + max(plateau + 0.05 (b - plateau), b)
// in units of samples. (0, 0) is linear; an overhead makes it affine; a plateau makes it flat up to that many
// samples, as on a GPU that is not full yet. The small slope on the plateau costs nothing and keeps the allocator
// from treating all batches there alike, so that it explores the plateau for free.
#pragma once

#include "isochron/core/curve/curve.h"

namespace isochron {

struct Shape {
  double overhead = 0.0;  // samples, >= 0
  double plateau = 0.0;   // samples, >= 0

  static constexpr double kPlateauSlope = 0.05;

  bool operator==(const Shape&) const = default;

  /// h(b), for b > 0.
  [[nodiscard]] double operator()(double batch) const {
    const double flat = plateau + kPlateauSlope * (batch - plateau);
    return overhead + (flat > batch ? flat : batch);
  }

  /// h(b) with a plateau that is flat.
  [[nodiscard]] double without_slope(double batch) const { return overhead + (plateau > batch ? plateau : batch); }

  /// The time curve of a worker with this shape that takes `scale` seconds per unit of h.
  [[nodiscard]] Curve curve(double scale) const {
    return Curve::saturating(
        scale * (overhead + (1.0 - kPlateauSlope) * plateau), scale * overhead, scale, scale * kPlateauSlope);
  }
};

}  // namespace isochron
