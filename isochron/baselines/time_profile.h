// What is known of a worker's time over batch sizes: a few measured points, at most one per power of two.
#pragma once

#include <vector>

#include "isochron/core/curve/curve.h"
#include "isochron/core/state.h"
#include "isochron/core/telemetry.h"

namespace isochron {

class TimeProfile {
 public:
  [[nodiscard]] bool empty() const { return points_.empty(); }

  /// A monotone cubic through the points (cubic_fit.h); there must be one.
  [[nodiscard]] Curve curve() const;

  /// Takes in a valid reading; it replaces the point of the same power of two.
  void insert(const Reading& reading);

  /// Takes a valid reading as news of the worker's speed: all points are scaled until the curve agrees with it.
  void stretch_to(const Reading& reading);

  void exchange(StateExchange& state);

 private:
  void put(Curve::Point point);

  std::vector<Curve::Point> points_;  // in the order of their batches
};

}  // namespace isochron
