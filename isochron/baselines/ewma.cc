#include "isochron/baselines/ewma.h"

#include <stdexcept>

namespace isochron {

Ewma::Ewma(double alpha) : alpha_(alpha) {
  if (!(alpha > 0.0 && alpha <= 1.0)) {
    throw std::invalid_argument("ewma is " + std::to_string(alpha) + "; permitted: above 0, at most 1");
  }
}

double Ewma::predict(const Usage& /*now*/) const {
  return mean_;
}

void Ewma::learn(double speed, const Usage& /*usage*/) {
  mean_ = mean_ > 0.0 ? mean_ + alpha_ * (speed - mean_) : speed;
}

void Ewma::exchange(StateExchange& state) {
  state.field("mean", mean_);
}

}  // namespace isochron
