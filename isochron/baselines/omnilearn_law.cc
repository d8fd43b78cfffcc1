#include "isochron/baselines/omnilearn_law.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "isochron/baselines/smoothed_times.h"

namespace isochron {
namespace {

// The most that a batch changes in one adjustment; keeps an absurdly short time from giving infinity.
constexpr double kLargestGrowth = 1e12;

}  // namespace

std::vector<double> omnilearn_law(std::span<const std::int64_t> batches, std::span<const double> seconds) {
  const double mean = mean_of_known(seconds);
  std::vector<double> result(batches.begin(), batches.end());
  for (std::size_t k = 0; k < result.size(); ++k) {
    if (!std::isnan(seconds[k])) {
      result[k] *= std::min(mean / seconds[k], kLargestGrowth);
    }
  }
  return result;
}

std::vector<double> restore_sum(
    std::span<const double> batches, std::span<const BatchBounds> bounds, std::int64_t global_batch, SumRule rule) {
  const auto target = static_cast<double>(global_batch);
  std::vector<double> result(batches.size());
  // The sum after a common change, which grows with it.
  const auto sum_after = [&](double change) {
    double sum = 0.0;
    for (std::size_t k = 0; k < batches.size(); ++k) {
      const double batch = rule == SumRule::kAdditive ? batches[k] + change : batches[k] * change;
      result[k] = clamped(batch, bounds[k]);
      sum += result[k];
    }
    return sum;
  };
  const double largest = std::max(std::ranges::max(batches), target);
  double low = rule == SumRule::kAdditive ? -largest : 0.0;
  double high = rule == SumRule::kAdditive ? target : kLargestGrowth;
  for (int halving = 0; halving < 100; ++halving) {
    const double middle = low + (high - low) / 2.0;
    (sum_after(middle) < target ? low : high) = middle;
  }
  (void)sum_after(high);
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
    const double bounded = clamped(candidate, bounds);
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
