#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "isochron/core/curve/curve.h"

namespace isochron {
namespace {

// The same thousands of cases in every run, unless the environment says otherwise.
[[maybe_unused]] const int kCurveConfigured = setenv("RC_PARAMS", "seed=20 max_success=3000", 0);

/// Twelve orders of magnitude, so that sums lose digits.
double magnitude() {
  return std::exp(static_cast<double>(*rc::gen::inRange(-14000, 14000)) / 1000.0);
}

double magnitude_or_zero() {
  return *rc::gen::arbitrary<bool>() ? magnitude() : 0.0;
}

Curve any_curve() {
  if (*rc::gen::arbitrary<bool>()) {
    return Curve::saturating(magnitude_or_zero(), magnitude_or_zero(), magnitude_or_zero(), magnitude_or_zero());
  }
  std::vector<Curve::Point> points;
  Curve::Point point;
  const int count = *rc::gen::inRange(1, 6);
  for (int i = 0; i < count; ++i) {
    const double batch = point.batch + magnitude();
    if (batch > point.batch) {
      point = {.batch = batch, .seconds = point.seconds + magnitude_or_zero()};
      points.push_back(point);
    }
  }
  return Curve::table(std::move(points));
}

RC_GTEST_PROP(CurvePropertyTest, CapacityNeverTakesLongerThanAllowed, ()) {
  const Curve curve = any_curve();
  const double seconds = magnitude();
  const double capacity = curve.capacity(seconds);
  RC_ASSERT(capacity >= 0.0);
  if (std::isfinite(capacity)) {
    RC_ASSERT(curve.seconds(capacity) <= seconds);
    // A little more takes longer, but for rounding: nothing worth having was left out.
    const double more = std::max(capacity, 1e-12) * (1.0 + 1e-9);
    RC_ASSERT(curve.seconds(more) >= seconds * (1.0 - 1e-9));
  }
}

RC_GTEST_PROP(CurvePropertyTest, TimeNeverDecreases, ()) {
  const Curve curve = any_curve();
  const double batch = magnitude();
  const double more = *rc::gen::arbitrary<bool>() ? std::nextafter(batch, 1e300) : batch + magnitude();
  RC_ASSERT(curve.seconds(batch) <= curve.seconds(more));
}

}  // namespace
}  // namespace isochron
