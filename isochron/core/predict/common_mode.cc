#include "isochron/core/predict/common_mode.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace isochron {
namespace {

constexpr double kFirstVariance = 0.05 * 0.05;
constexpr double kGain = 0.02;
constexpr double kResidualClip = 4.0;      // standard deviations
constexpr double kLeastCorrelation = 0.3;  // below it the guess would add more noise than it removes

double median(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  if (sorted.size() % 2 == 1) {
    return *middle;
  }
  return 0.5 * (*middle + *std::max_element(sorted.begin(), middle));
}

}  // namespace

double CommonMode::estimate(std::span<const double> errors) {
  const auto count = static_cast<double>(errors.size());
  if (errors.size() < 2) {
    return 0.0;
  }
  if (variance_ == 0.0) {
    variance_ = kFirstVariance;
    variance_of_mean_ = kFirstVariance / count;
  }
  const double limit = kResidualClip * std::sqrt(variance_);
  double squares = 0.0;
  double sum = 0.0;
  for (const double error : errors) {
    const double clipped = std::clamp(error, -limit, limit);
    squares += clipped * clipped;
    sum += clipped;
  }
  const double mean = sum / count;
  variance_ = std::max(variance_ + kGain * (squares / count - variance_), 1e-12);
  variance_of_mean_ += kGain * (mean * mean - variance_of_mean_);
  const double correlation = std::clamp((count * variance_of_mean_ / variance_ - 1.0) / (count - 1.0), 0.0, 1.0);
  if (correlation <= kLeastCorrelation) {
    return 0.0;
  }
  return count * correlation / (1.0 + (count - 1.0) * correlation) * median(errors);
}

void CommonMode::exchange(StateExchange& state) {
  state.field("variance", variance_);
  state.field("variance_of_mean", variance_of_mean_);
}

}  // namespace isochron
