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

/// A worker's log time in the form the integral needs.
struct Spread {
  double log_mean;
  double per_sigma;  // 1 / sigma
};

/// P(log X_k <= u for all k).
double none_later(std::span<const Spread> workers, double u, const CdfTable& cdf) {
  constexpr double kNever = 1e-9;  // below it the product does not count, and the rest of it need not be taken
  double product = 1.0;
  for (const Spread& worker : workers) {
    const double z = (u - worker.log_mean) * worker.per_sigma;
    if (z >= kReach) {
      continue;
    }
    product *= z > -kReach ? cdf(z) : 0.0;  // 0 also if z is not a number, for which the table has no place
    if (product < kNever) {
      return 0.0;
    }
  }
  return product;
}

}  // namespace

double expected_max(std::span<const double> log_means, std::span<const double> sigmas) {
  static const CdfTable cdf;
  std::vector<Spread> workers(log_means.size());
  // Below the largest lower end the maximum cannot be; above the largest upper end it is certainly not.
  double low = -std::numeric_limits<double>::infinity();
  double high = low;
  for (std::size_t k = 0; k < workers.size(); ++k) {
    const double sigma = std::max(sigmas[k], kLeastSigma);
    workers[k] = {.log_mean = log_means[k], .per_sigma = 1.0 / sigma};
    low = std::max(low, log_means[k] - kReach * sigma);
    high = std::max(high, log_means[k] + kReach * sigma);
  }
  // Few points do for many workers: time matters more there.
  const std::size_t points = workers.size() > 256 ? 33 : 65;
  const double width = (high - low) / static_cast<double>(points - 1);
  const double ratio = std::exp(width);
  const double first = std::exp(low);
  double x = first;
  double integral = 0.0;
  for (std::size_t i = 0; i < points; ++i, x *= ratio) {
    const double ends = i == 0 || i + 1 == points ? 0.5 : 1.0;
    integral += ends * (1.0 - none_later(workers, low + static_cast<double>(i) * width, cdf)) * x;
  }
  return first + integral * width;
}

}  // namespace isochron
