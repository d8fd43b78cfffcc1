// Autoregression, fitted online: it predicts
//
//   v(k) = c + a_1 v(k-1) + ... + a_p v(k-p)
//
// by least squares over the past, a step counting 0.98 times as much as the one after it. A small ridge holds the fit
// at "as fast as the last step" (a_1 = 1, the rest 0) where the past does not say otherwise, as with a constant speed.
// It stands for the ARIMA model of LB-BSP's comparison: the moving-average part, which needs iterative fitting, is left
// out, and forgetting takes the place of differencing. O(p^3) a step.
#pragma once

#include <cstddef>
#include <vector>

#include "isochron/baselines/history.h"
#include "isochron/baselines/predictor.h"

namespace isochron {

class AutoRegression final : public Predictor {
 public:
  /// `order`, p above, is 1 to 16; anything else throws std::invalid_argument.
  explicit AutoRegression(std::int64_t order);

  [[nodiscard]] double predict(const Usage& now) const override;
  void exchange(StateExchange& state) override;

 private:
  void learn(double speed, const Usage& usage) override;
  [[nodiscard]] std::vector<double> regressors() const;
  void add_equation(const std::vector<double>& regressors, double target);
  void fit();

  std::size_t terms_;            // the constant and the past speeds
  double unit_ = 0.0;            // the first speed; the regression runs on v / unit - 1
  History past_;                 // speeds
  std::vector<double> moments_;  // discounted sum of x x', row by row
  std::vector<double> targets_;  // discounted sum of x y
  std::vector<double> weights_;  // c, a_1 ... a_p
};

}  // namespace isochron
