// A cubic through measured times, by least squares, made fit for the allocator: LBB's model of a worker.
#pragma once

#include <vector>

#include "isochron/core/curve/curve.h"

namespace isochron {

/// The least-squares polynomial t(b) of degree min(3, points - 1), tabulated between the first and the last point and
/// made non-decreasing by its running maximum. Beyond the last point the time grows in proportion to the batch, since a
/// cubic must not be trusted there. `points` have increasing positive batches and positive times; at least one.
/// O(points).
Curve fit_cubic(const std::vector<Curve::Point>& points);

}  // namespace isochron
