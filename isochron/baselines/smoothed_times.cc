#include "isochron/baselines/smoothed_times.h"

#include <algorithm>
#include <cmath>

#include "isochron/core/policy/per_worker.h"

namespace isochron {

double mean_of_known(std::span<const double> seconds) {
  const auto known = static_cast<double>(std::ranges::count_if(seconds, [](double t) { return !std::isnan(t); }));
  double mean = 0.0;
  for (const double t : seconds) {
    mean += std::isnan(t) ? 0.0 : t / known;
  }
  return mean;
}

void SmoothedTimes::reset(std::size_t workers) {
  seconds_.assign(workers, kUnknown);
  counts_.assign(workers, 0);
}

void SmoothedTimes::add(std::span<const Reading> readings) {
  for (std::size_t k = 0; k < readings.size(); ++k) {
    if (!readings[k].valid) {
      continue;
    }
    ++counts_[k];
    if (counts_[k] == 1) {
      seconds_[k] = readings[k].seconds;
    } else {
      const double weight = newest_ == kPlainMean ? 1.0 / static_cast<double>(counts_[k]) : newest_;
      seconds_[k] += weight * (readings[k].seconds - seconds_[k]);
    }
  }
}

bool SmoothedTimes::any_known() const {
  return std::ranges::any_of(counts_, [](std::int64_t count) { return count > 0; });
}

void SmoothedTimes::exchange(StateExchange& state) {
  state.fixed_list("seconds", seconds_);
  state.fixed_list("counts", counts_);
}

}  // namespace isochron
