#include "isochron/baselines/time_profile.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "isochron/baselines/cubic_fit.h"

namespace isochron {
namespace {

constexpr double kShortest = 1e-12;
constexpr double kLongest = 1e12;
constexpr double kLargestBatch = 0x1p53;

// Times outside are as good as these and would only overflow.
double sensible(double seconds) {
  return std::clamp(seconds, kShortest, kLongest);
}

bool is_point(double batch, double seconds) {
  return batch >= 0.0 && batch <= kLargestBatch && seconds >= kShortest && seconds <= kLongest;
}

int power_of(double batch) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(batch)));
}

}  // namespace

Curve TimeProfile::curve() const {
  return fit_cubic(points_);
}

void TimeProfile::insert(const Reading& reading) {
  put({.batch = static_cast<double>(reading.batch), .seconds = sensible(reading.seconds)});
}

void TimeProfile::put(Curve::Point point) {
  const auto place = std::ranges::lower_bound(
      points_, power_of(point.batch), {}, [](const Curve::Point& known) { return power_of(known.batch); });
  if (place != points_.end() && power_of(place->batch) == power_of(point.batch)) {
    *place = point;
  } else {
    points_.insert(place, point);
  }
}

void TimeProfile::stretch_to(const Reading& reading) {
  if (!empty()) {
    const double factor = sensible(reading.seconds) / curve().seconds(static_cast<double>(reading.batch));
    for (Curve::Point& point : points_) {
      point.seconds = sensible(point.seconds * factor);
    }
  }
  insert(reading);
}

void TimeProfile::exchange(StateExchange& state) {
  std::vector<double> batches;
  std::vector<double> seconds;
  for (const Curve::Point& point : points_) {
    batches.push_back(point.batch);
    seconds.push_back(point.seconds);
  }
  state.field("batches", batches);
  state.field("seconds", seconds);
  if (batches.size() != seconds.size()) {
    throw std::invalid_argument("a saved profile has more batches than times, or fewer; permitted: as many");
  }
  points_.clear();
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (!is_point(batches[i], seconds[i])) {
      throw std::invalid_argument("a saved profile has a batch or a time out of range");
    }
    put({.batch = batches[i], .seconds = seconds[i]});
  }
}

}  // namespace isochron
