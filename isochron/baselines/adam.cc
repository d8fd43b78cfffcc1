#include "isochron/baselines/adam.h"

#include <cmath>

namespace isochron {
namespace {

constexpr double kMeanDecay = 0.9;
constexpr double kSquareDecay = 0.999;
constexpr double kTiny = 1e-8;

}  // namespace

Adam::Adam(std::size_t parameters, double rate) : rate_(rate), mean_(parameters, 0.0), square_(parameters, 0.0) {
}

void Adam::step(std::span<double> parameters, std::span<const double> gradient) {
  mean_power_ *= kMeanDecay;
  square_power_ *= kSquareDecay;
  const double rate = rate_ * std::sqrt(1.0 - square_power_) / (1.0 - mean_power_);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const double slope = gradient[i];
    mean_[i] += (1.0 - kMeanDecay) * (slope - mean_[i]);
    square_[i] += (1.0 - kSquareDecay) * (slope * slope - square_[i]);
    parameters[i] -= rate * mean_[i] / (std::sqrt(square_[i]) + kTiny);
  }
}

void Adam::exchange(StateExchange& state) {
  state.fixed_list("mean", mean_);
  state.fixed_list("square", square_);
  state.field("mean_power", mean_power_);
  state.field("square_power", square_power_);
}

}  // namespace isochron
