#include "isochron/baselines/normaliser.h"

#include <algorithm>
#include <cmath>

namespace isochron {
namespace {

// Weights of the newest value: the level follows in about 5 steps, its spread in about 50.
constexpr double kLevelWeight = 0.2;
constexpr double kSpreadWeight = 0.02;
// A signal that stands still has a spread of this share of its level, so that rounding errors stay small.
constexpr double kLeastSpread = 0.01;
constexpr double kAboveZero = 1e-15;
constexpr double kLimit = 4.0;

}  // namespace

void Normaliser::observe(double value) {
  if (std::isnan(value)) {
    return;
  }
  ++count_;
  const double error = count_ == 1 ? 0.0 : value - level_;
  const double plain_mean = 1.0 / static_cast<double>(count_);  // until the running averages have filled
  variance_ += std::max(kSpreadWeight, plain_mean) * (error * error - variance_);
  level_ += std::max(kLevelWeight, plain_mean) * (value - level_);
}

double Normaliser::normalised(double value) const {
  if (std::isnan(value) || count_ == 0) {
    return 0.0;
  }
  return std::clamp((value - level_) / spread(), -kLimit, kLimit);
}

double Normaliser::spread() const {
  return std::max({std::sqrt(variance_), kLeastSpread * std::abs(level_), kAboveZero});
}

void Normaliser::exchange(StateExchange& state) {
  state.field("count", count_);
  state.field("level", level_);
  state.field("variance", variance_);
}

}  // namespace isochron
