#include "isochron/core/predict/expected_max.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "isochron/core/random/normal.h"

namespace isochron {
namespace {

// Beyond this many standard deviations a worker counts as certainly done, or certainly not.
constexpr double kReach = 5.0;
constexpr double kLeastSigma = 1e-6;

/// The normal distribution function by linear interpolation: absolute error below 1e-6, a tenth of erfc's time.
class CdfTable {
 public:
  CdfTable() {
    for (std::size_t i = 0; i < value_.size(); ++i) {
      value_[i] = normal_cdf(static_cast<double>(i) / kPerUnit - kReach);
    }
  }
  [[nodiscard]] double operator()(double z) const {
    const double place = (z + kReach) * kPerUnit;
    const auto index = static_cast<std::size_t>(place);
    return value_[index] + (place - static_cast<double>(index)) * (value_[index + 1] - value_[index]);
  }

 private:
  static constexpr double kPerUnit = 256.0;
  std::array<double, static_cast<std::size_t>(2.0 * kReach * kPerUnit) + 2> value_{};
};

}  // namespace

double expected_max(std::span<const double> log_means, std::span<const double> sigmas) {
  static const CdfTable kCdf;
  // Below the largest lower end the maximum cannot be; above the largest upper end it is certainly not.
  double low = -std::numeric_limits<double>::infinity();
  double high = low;
  for (std::size_t k = 0; k < log_means.size(); ++k) {
    const double reach = kReach * std::max(sigmas[k], kLeastSigma);
    low = std::max(low, log_means[k] - reach);
    high = std::max(high, log_means[k] + reach);
  }
  // Few points do for many workers: the distribution of the maximum is narrow and smooth then, and time matters more.
  const std::size_t points = log_means.size() > 256 ? 33 : 65;
  const double width = (high - low) / static_cast<double>(points - 1);
  std::vector<double> none_later(points, 1.0);  // prod_k P(log X_k <= u) at every point u
  for (std::size_t k = 0; k < log_means.size(); ++k) {
    const double per_sigma = 1.0 / std::max(sigmas[k], kLeastSigma);
    const double step = width * per_sigma;
    double z = (low - log_means[k]) * per_sigma;
    // From kReach on the factor is 1.
    for (std::size_t i = 0; i < points && z < kReach; ++i, z += step) {
      none_later[i] *= z <= -kReach ? 0.0 : kCdf(z);
    }
  }
  double integral = 0.0;
  double x = std::exp(low);
  const double result = x;
  const double ratio = std::exp(width);
  for (std::size_t i = 0; i < points; ++i, x *= ratio) {
    const double ends = i == 0 || i + 1 == points ? 0.5 : 1.0;
    integral += ends * (1.0 - none_later[i]) * x;
  }
  return result + integral * width;
}

}  // namespace isochron
