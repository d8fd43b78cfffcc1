// The time of each worker, averaged over the steps since the last reset.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isochron/core/state.h"
#include "isochron/core/telemetry.h"

namespace isochron {

/// The mean of all entries that are not NaN; 0 if there is none. Does not overflow.
double mean_of_known(std::span<const double> seconds);

class SmoothedTimes {
 public:
  static constexpr double kPlainMean = 0.0;

  /// `newest` is the weight of the newest time in an exponentially weighted average, 0..1, or kPlainMean.
  explicit SmoothedTimes(double newest) : newest_(newest) {}

  void reset(std::size_t workers);
  void add(std::span<const Reading> readings);

  /// NaN for a worker without a valid reading.
  [[nodiscard]] const std::vector<double>& seconds() const { return seconds_; }
  [[nodiscard]] bool any_known() const;

  void exchange(StateExchange& state);

 private:
  double newest_;
  std::vector<double> seconds_;
  std::vector<std::int64_t> counts_;
};

}  // namespace isochron
