// Takes out of the workers' surprises what they all share: a slow network, a co-tenant of the whole cluster.
//
// A shared slowdown does not call for another split, but looks like noise of every single worker, which the risk rule
// would pay for. The correlation rho of the workers' errors is estimated from the variance of their mean; where it
// exceeds 0.3, the best linear guess of the shared part, K rho / (1 + (K-1) rho) times the median error, is removed.
#pragma once

#include <span>

#include "isochron/core/state.h"

namespace isochron {

class CommonMode {
 public:
  /// The part of this step's errors (log time against expectation) that all workers share; 0 for fewer than 2.
  [[nodiscard]] double estimate(std::span<const double> errors);
  void exchange(StateExchange& state);

 private:
  double variance_ = 0.0;          // of a single error
  double variance_of_mean_ = 0.0;  // of the mean over workers
};

}  // namespace isochron
