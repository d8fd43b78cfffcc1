#include "isochron/plan/profile.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "isochron/core/error.h"

namespace isochron::plan {
namespace {

void require_not_negative(std::string_view field, double value) {
  require(std::isfinite(value) && value >= 0.0, field, value, "a finite number, 0 or more");
}

void check_points(const std::vector<ProfilePoint>& points) {
  require(!points.empty(), "the number of points", "0", "1 or more");
  std::int64_t before = 0;
  for (const ProfilePoint& point : points) {
    require(point.batch > before, "batch", point.batch, "1 or more, and more than the one before");
    before = point.batch;
    require(
        std::isfinite(point.p50_seconds) && point.p50_seconds > 0.0,
        "p50",
        point.p50_seconds,
        "a finite number above 0");
    require(
        std::isfinite(point.p90_seconds) && point.p90_seconds >= point.p50_seconds,
        "p90",
        point.p90_seconds,
        "a finite number, p50 or more");
    require_not_negative("bytes", point.bytes);
  }
}

template <class Value>
Curve table_of(const std::vector<ProfilePoint>& points, Value ProfilePoint::* field) {
  std::vector<Curve::Point> table;
  table.reserve(points.size());
  for (const ProfilePoint& point : points) {
    table.push_back({.batch = static_cast<double>(point.batch), .seconds = point.*field});
  }
  return Curve::table(monotone(std::move(table)));
}

}  // namespace

void Profile::validate() const {
  require_at_least("dataset_size", dataset_size, 0);
  require(std::isfinite(cores) && cores > 0.0, "cores", cores, "a finite number above 0");
  require_at_least("threads", threads, 0);
  require_not_negative("parameter_bytes", parameter_bytes);
  require_not_negative("prepare_seconds", prepare_seconds);
  require_not_negative("update_seconds", update_seconds);
  require_not_negative("copy_seconds", copy_seconds);
  check_points(points);
}

Curve Profile::curve() const {
  return table_of(points, &ProfilePoint::p50_seconds);
}

BentFit Profile::fit() const {
  std::vector<Curve::Point> medians;
  medians.reserve(points.size());
  for (const ProfilePoint& point : points) {
    medians.push_back({.batch = static_cast<double>(point.batch), .seconds = point.p50_seconds});
  }
  return fit_bent_line(medians);
}

double Profile::noise() const {
  constexpr double kNinetyPerCent = 1.2815515655446004;  // quantile of the normal distribution
  const std::size_t from = points.size() / 2;
  double sum = 0.0;
  for (std::size_t i = from; i < points.size(); ++i) {
    sum += std::log(points[i].p90_seconds / points[i].p50_seconds) / kNinetyPerCent;
  }
  return sum / static_cast<double>(points.size() - from);
}

std::int64_t Profile::batch_for_memory(double bytes) const {
  std::vector<ProfilePoint> known = points;
  std::erase_if(known, [](const ProfilePoint& point) { return point.bytes <= 0.0; });
  if (known.empty()) {
    return kNoLimit;
  }
  const double batch = table_of(known, &ProfilePoint::bytes).capacity(bytes);
  constexpr double kMost = 1e15;
  return batch >= kMost ? kNoLimit : static_cast<std::int64_t>(batch);
}

}  // namespace isochron::plan
