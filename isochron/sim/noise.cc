#include "isochron/sim/noise.h"

#include <cmath>

#include "isochron/core/random/normal.h"
#include "isochron/core/random/random.h"

namespace isochron::sim {
namespace {

// Speeds stay within 1:8 of where they started.
constexpr double kFarthestWalk = 2.0794415416798357;  // log 8

/// `walk` folded back at the walls. A jump of several widths ends at the wall.
double reflected(double walk) {
  if (walk > kFarthestWalk) {
    return std::fmax(2.0 * kFarthestWalk - walk, -kFarthestWalk);
  }
  if (walk < -kFarthestWalk) {
    return std::fmin(-2.0 * kFarthestWalk - walk, kFarthestWalk);
  }
  return walk;
}

/// The bounded Pareto distribution with index 1, by its quantile function.
double spike_factor(double low, double high, double uniform) {
  return 1.0 / (1.0 / low - uniform * (1.0 / low - 1.0 / high));
}

}  // namespace

void NoiseProcess::advance(std::int64_t step) {
  const bool has_memory = noise_.autocorrelation > 0.0 || noise_.drift > 0.0;
  if (!has_memory && step > step_) {
    step_ = step - 1;
  }
  while (step_ < step) {
    draw(++step_);
  }
}

void NoiseProcess::draw(std::int64_t step) {
  // The order of the draws is fixed, so that switching on one kind of noise leaves the others as they were.
  Random random({seed_, worker_, static_cast<std::uint64_t>(step)});
  const double shock_at = random.uniform();
  const double spike_at = random.uniform();
  const double spike_size = random.uniform();
  const double drift_at = random.uniform();
  const double shock = noise_.sigma > 0.0 ? noise_.sigma * normal_quantile(shock_at) : 0.0;
  surprise_ = 1.0;
  if (noise_.autocorrelation > 0.0) {
    const double memory = step == 0 ? 0.0 : noise_.autocorrelation;
    level_ = memory * level_ + std::sqrt(1.0 - memory * memory) * shock;
  } else {
    surprise_ = std::exp(shock);
  }
  if (spike_at < noise_.spike_probability) {
    surprise_ *= spike_factor(noise_.spike_low, noise_.spike_high, spike_size);
  }
  if (noise_.drift > 0.0) {
    walk_ = reflected(walk_ + noise_.drift * normal_quantile(drift_at));
  }
  known_ = std::exp(walk_ + level_);
}

double common_factor(double sigma, std::uint64_t seed, std::int64_t step) {
  if (sigma == 0.0) {
    return 1.0;
  }
  // No worker has this number.
  constexpr std::uint64_t kEveryone = ~std::uint64_t{0};
  return std::exp(sigma * Random({seed, kEveryone, static_cast<std::uint64_t>(step)}).normal());
}

}  // namespace isochron::sim
