// The coming step will be as fast as the last one.
#pragma once

#include "isochron/baselines/predictor.h"

namespace isochron {

class Memoryless final : public Predictor {
 public:
  [[nodiscard]] double predict(const Usage& now) const override;
  void exchange(StateExchange& state) override;

 private:
  void learn(double speed, const Usage& usage) override;

  double last_ = 0.0;
};

}  // namespace isochron
