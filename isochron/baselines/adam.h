// Adam (Kingma and Ba, ICLR 2015): gradient descent with a step per parameter, from running moments of its gradient.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "isochron/core/state.h"

namespace isochron {

class Adam {
 public:
  Adam(std::size_t parameters, double rate);

  /// One step downhill; both spans have one number per parameter.
  void step(std::span<double> parameters, std::span<const double> gradient);

  void exchange(StateExchange& state);

 private:
  double rate_;
  std::vector<double> mean_;
  std::vector<double> square_;
  // Powers of the two decays: 1 - power is the weight that the running moments have gathered so far.
  double mean_power_ = 1.0;
  double square_power_ = 1.0;
};

}  // namespace isochron
