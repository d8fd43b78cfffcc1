#include "isochron/core/curve/curve.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

namespace isochron {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double checked(const char* field, double value) {
  if (!std::isfinite(value) || value < 0.0) {
    throw std::invalid_argument(
        std::string(field) + " of a time curve is " + std::to_string(value) +
        "; permitted: a finite number, 0 or more");
  }
  return value;
}

void check_points(const std::vector<Curve::Point>& points) {
  if (points.empty()) {
    throw std::invalid_argument("a time curve's table is empty; permitted: 1 point or more");
  }
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double batch = checked("batch", points[i].batch);
    const double seconds = checked("seconds", points[i].seconds);
    const double batch_before = i == 0 ? 0.0 : points[i - 1].batch;
    const double seconds_before = i == 0 ? 0.0 : points[i - 1].seconds;
    if (batch <= batch_before) {
      throw std::invalid_argument(
          "a time curve's table has batch " + std::to_string(batch) + " after " + std::to_string(batch_before) +
          "; permitted: positive, strictly increasing batches");
    }
    if (seconds < seconds_before) {
      throw std::invalid_argument(
          "a time curve's table has " + std::to_string(seconds) + " seconds after " + std::to_string(seconds_before) +
          "; permitted: times that do not decrease");
    }
  }
}

// The line through two points of a table. Monotone in spite of rounding, which the allocator relies on.
struct Segment {
  Curve::Point from;
  Curve::Point to;

  [[nodiscard]] bool flat() const { return to.seconds == from.seconds; }
  [[nodiscard]] double seconds(double batch) const {
    if (flat()) {
      return to.seconds;
    }
    return from.seconds + (to.seconds - from.seconds) * ((batch - from.batch) / (to.batch - from.batch));
  }
  [[nodiscard]] double batch(double seconds) const {
    return from.batch + (to.batch - from.batch) * ((seconds - from.seconds) / (to.seconds - from.seconds));
  }
};

// Beyond the last point: the last segment moved to start there; the origin stands in for a missing point.
Segment tail(const std::vector<Curve::Point>& points) {
  const Curve::Point last = points.back();
  const Curve::Point before = points.size() > 1 ? points[points.size() - 2] : Curve::Point{};
  return {
      .from = last, .to = {.batch = 2.0 * last.batch - before.batch, .seconds = 2.0 * last.seconds - before.seconds}};
}

double table_seconds(const std::vector<Curve::Point>& points, double batch) {
  const auto after = std::ranges::lower_bound(points, batch, {}, &Curve::Point::batch);
  if (after == points.begin()) {
    return after->seconds;
  }
  if (after == points.end()) {
    return tail(points).seconds(batch);
  }
  return std::min(Segment{.from = *(after - 1), .to = *after}.seconds(batch), after->seconds);
}

double table_capacity(const std::vector<Curve::Point>& points, double seconds) {
  const auto after = std::ranges::upper_bound(points, seconds, {}, &Curve::Point::seconds);
  if (after == points.begin()) {
    return 0.0;
  }
  if (after != points.end()) {
    return Segment{.from = *(after - 1), .to = *after}.batch(seconds);
  }
  const Segment rest = tail(points);
  return rest.flat() ? kInfinity : rest.batch(seconds);
}

double line_capacity(double fixed, double slope, double seconds) {
  if (seconds < fixed) {
    return 0.0;
  }
  return slope > 0.0 ? (seconds - fixed) / slope : kInfinity;
}

}  // namespace

Curve Curve::linear(double seconds_per_sample) {
  return saturating(0.0, 0.0, seconds_per_sample);
}

Curve Curve::affine(double fixed_seconds, double seconds_per_sample) {
  return saturating(0.0, fixed_seconds, seconds_per_sample);
}

Curve Curve::saturating(double floor_seconds, double fixed_seconds, double seconds_per_sample, double floor_slope) {
  Curve curve;
  curve.line_ = {
      .floor = checked("floor_seconds", floor_seconds),
      .floor_slope = checked("floor_slope", floor_slope),
      .fixed = checked("fixed_seconds", fixed_seconds),
      .slope = checked("seconds_per_sample", seconds_per_sample)};
  return curve;
}

Curve Curve::table(std::vector<Point> points) {
  check_points(points);
  Curve curve;
  curve.table_ = std::make_shared<const std::vector<Point>>(std::move(points));
  return curve;
}

double Curve::table_seconds(double batch) const {
  return isochron::table_seconds(*table_, batch);
}

double Curve::capacity(double seconds) const {
  double batch = is_table() ? table_capacity(*table_, seconds)
                            : std::min(
                                  line_capacity(line_.floor, line_.floor_slope, seconds),
                                  line_capacity(line_.fixed, line_.slope, seconds));
  if (batch == kInfinity) {
    return batch;
  }
  // Rounding may have gone a few units in the last place too far.
  while (batch > 0.0 && this->seconds(batch) > seconds) {
    batch = std::nextafter(batch, 0.0);
  }
  return batch;
}

Curve Curve::scaled(double factor) const {
  if (!std::isfinite(factor) || factor <= 0.0) {
    throw std::invalid_argument(
        "factor of a time curve is " + std::to_string(factor) + "; permitted: a finite number above 0");
  }
  if (!is_table()) {
    return saturating(factor * line_.floor, factor * line_.fixed, factor * line_.slope, factor * line_.floor_slope);
  }
  std::vector<Point> points = *table_;
  for (Point& point : points) {
    point.seconds *= factor;
  }
  return table(std::move(points));
}

Curve Curve::in_units_of(double unit) const {
  if (!std::isfinite(unit) || unit <= 0.0) {
    throw std::invalid_argument(
        "unit of a time curve is " + std::to_string(unit) + "; permitted: a finite number above 0");
  }
  if (!is_table()) {
    return saturating(line_.floor, line_.fixed, unit * line_.slope, unit * line_.floor_slope);
  }
  std::vector<Point> points = *table_;
  for (Point& point : points) {
    point.batch /= unit;
  }
  return table(std::move(points));
}

}  // namespace isochron
