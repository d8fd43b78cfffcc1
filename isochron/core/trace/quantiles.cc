#include "isochron/core/trace/quantiles.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace isochron {

double quantile(std::span<const double> sorted, double share) {
  if (sorted.empty()) {
    return 0.0;
  }
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

Quantiles quantiles(std::vector<double> values) {
  if (values.empty()) {
    return {};
  }
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  std::ranges::sort(values);
  return {
      .p50 = quantile(values, 0.5),
      .p90 = quantile(values, 0.9),
      .p99 = quantile(values, 0.99),
      .mean = sum / static_cast<double>(values.size())};
}

}  // namespace isochron
