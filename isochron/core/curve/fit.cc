#include "isochron/core/curve/fit.h"

#include <algorithm>
#include <cmath>

#include "isochron/core/error.h"

namespace isochron {
namespace {

using Points = std::span<const Curve::Point>;

/// Least squares of (fixed + slope b) / t - 1, both 0 or more.
Curve::BentLine fit_line(Points points) {
  double xx = 0.0;
  double xy = 0.0;
  double yy = 0.0;
  double x = 0.0;
  double y = 0.0;
  for (const Curve::Point& point : points) {
    const double per_second = 1.0 / point.seconds;
    const double rate = point.batch / point.seconds;
    xx += per_second * per_second;
    xy += per_second * rate;
    yy += rate * rate;
    x += per_second;
    y += rate;
  }
  constexpr double kSingular = 1e-12;  // one point, or points that are one
  const double determinant = xx * yy - xy * xy;
  if (determinant > kSingular * xx * yy) {
    const double fixed = (x * yy - y * xy) / determinant;
    const double slope = (y * xx - x * xy) / determinant;
    if (fixed >= 0.0 && slope >= 0.0) {
      return {.fixed = fixed, .slope = slope};
    }
    if (slope < 0.0) {
      return {.fixed = x / xx};
    }
  }
  return {.slope = y / yy};
}

double squared_errors(Points points, const Curve::BentLine& line) {
  double sum = 0.0;
  for (const Curve::Point& point : points) {
    const double seconds = std::max(line.floor, line.fixed + line.slope * point.batch);
    const double error = seconds / point.seconds - 1.0;
    sum += error * error;
  }
  return sum;
}

/// The level with the least squares of level / t - 1.
double fit_level(Points points) {
  double x = 0.0;
  double xx = 0.0;
  for (const Curve::Point& point : points) {
    x += 1.0 / point.seconds;
    xx += 1.0 / (point.seconds * point.seconds);
  }
  return x / xx;
}

}  // namespace

BentFit fit_bent_line(Points points) {
  ISO_CHECK(!points.empty(), "a curve through no points");
  Curve::BentLine best = fit_line(points);
  double least = squared_errors(points, best);
  double permitted = least / 2.0;
  for (std::size_t flat = 2; flat + 2 <= points.size(); ++flat) {
    Curve::BentLine bent = fit_line(points.subspan(flat));
    bent.floor = fit_level(points.first(flat));
    const double errors = squared_errors(points, bent);
    if (errors < permitted) {
      best = bent;
      least = permitted = errors;
    }
  }
  return {.line = best, .misfit = std::sqrt(least / static_cast<double>(points.size()))};
}

std::vector<Curve::Point> monotone(std::vector<Curve::Point> points) {
  // Neighbours that are out of order are pooled until none are.
  struct Pool {
    double log_sum = 0.0;
    std::size_t size = 0;
    [[nodiscard]] double mean() const { return log_sum / static_cast<double>(size); }
  };
  std::vector<Pool> pools;
  pools.reserve(points.size());
  for (const Curve::Point& point : points) {
    pools.push_back({.log_sum = std::log(point.seconds), .size = 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
      const Pool last = pools.back();
      pools.pop_back();
      pools.back().log_sum += last.log_sum;
      pools.back().size += last.size;
    }
  }
  std::size_t next = 0;
  double before = 0.0;
  for (const Pool& pool : pools) {
    // A pool of one keeps its bits; rounding must not turn the order round.
    const double seconds = pool.size == 1 ? points[next].seconds : std::exp(pool.mean());
    for (std::size_t i = 0; i < pool.size; ++i) {
      points[next++].seconds = before = std::max(before, seconds);
    }
  }
  return points;
}

}  // namespace isochron
