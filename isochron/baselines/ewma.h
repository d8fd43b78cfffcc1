// The exponentially weighted moving average of past speeds: m += alpha (v - m), starting at the first speed.
#pragma once

#include "isochron/baselines/predictor.h"

namespace isochron {

class Ewma final : public Predictor {
 public:
  /// `alpha`, the weight of the newest speed, is above 0 and at most 1; anything else throws std::invalid_argument.
  explicit Ewma(double alpha);

  [[nodiscard]] double predict(const Usage& now) const override;
  void exchange(StateExchange& state) override;

 private:
  void learn(double speed, const Usage& usage) override;

  double alpha_;
  double mean_ = 0.0;
};

}  // namespace isochron
