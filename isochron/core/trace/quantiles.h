// How long the steps of a run took, in four numbers.
#pragma once

#include <span>
#include <vector>

namespace isochron {

struct Quantiles {
  double p50 = 0.0;
  double p90 = 0.0;
  double p99 = 0.0;
  double mean = 0.0;
};

/// The smallest value that at least `share` (0 to 1) of them do not exceed; 0 if there are none.
[[nodiscard]] double quantile(std::span<const double> sorted, double share);

/// All 0 if there are no values.
[[nodiscard]] Quantiles quantiles(std::vector<double> values);

}  // namespace isochron
