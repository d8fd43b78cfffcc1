#include "isochron/core/policy/omnilearn_law.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "isochron/core/policy/smoothed_times.h"

namespace isochron {

std::vector<double> omnilearn_law(std::span<const std::int64_t> batches, std::span<const double> seconds) {
  constexpr double kLargestGrowth = 1e12;  // keeps an absurdly short time from giving infinity
  const double mean = mean_of_known(seconds);
  std::vector<double> result(batches.begin(), batches.end());
  for (std::size_t k = 0; k < result.size(); ++k) {
    if (!std::isnan(seconds[k])) {
      result[k] *= std::min(mean / seconds[k], kLargestGrowth);
    }
  }
  return result;
}

std::vector<double> omnilearn_code_law(
    std::span<const std::int64_t> batches,
    std::span<const double> seconds,
    std::int64_t global_batch,
    double dead_band,
    BatchBounds bounds) {
  const auto count = static_cast<double>(batches.size());
  std::vector<double> result = omnilearn_law(batches, seconds);
  double dealt = 0.0;
  for (std::size_t k = 0; k < result.size(); ++k) {
    const auto old = static_cast<double>(batches[k]);
    const double candidate = std::abs(result[k] - old) >= dead_band * std::abs(result[k]) ? result[k] : old;
    const double bounded = std::clamp(candidate, bounds.low, bounds.high);
    dealt += std::ceil((candidate - bounded) / count);
    result[k] = std::ceil(bounded);
  }
  const double sum = std::accumulate(result.begin(), result.end(), 0.0) + dealt * count;
  const double drift = (sum - static_cast<double>(global_batch)) / count;
  for (double& batch : result) {
    batch = std::ceil(batch + dealt - drift);
  }
  return result;
}

}  // namespace isochron
