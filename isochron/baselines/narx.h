// NARX, the predictor that LB-BSP chose: a nonlinear autoregression with exogenous inputs,
//
//   v(k) = f(v(k-1) .. v(k-4);  cpu(k) .. cpu(k-2);  memory(k) .. memory(k-2))
//
// with f a network of one hidden layer, trained online. Its feedback runs through the measured speeds (the
// "series-parallel" form of NARX): they are known before the next step, so gradients need not travel back in time.
//
// The paper leaves open, and this decides: 8 hidden units; one Adam step per observation, on the newest example and
// three earlier ones drawn in turn from the last 64; errors beyond 2 spreads pull no harder than 2; inputs and output
// are relative to each signal's running level (normaliser.h), so an untrained network predicts the running level of
// speed, and an unknown CPU or memory share counts as the usual one. For the first 16 steps it predicts the last speed,
// later never less than half or more than twice the speeds of the last 32 steps. About 100 weights.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "isochron/baselines/adam.h"
#include "isochron/baselines/history.h"
#include "isochron/baselines/normaliser.h"
#include "isochron/baselines/perceptron.h"
#include "isochron/baselines/predictor.h"

namespace isochron {

class Narx final : public Predictor {
 public:
  Narx();

  [[nodiscard]] double predict(const Usage& now) const override;
  void exchange(StateExchange& state) override;

 private:
  static constexpr std::size_t kSpeedTaps = 4;
  static constexpr std::size_t kUsageTaps = 3;  // the current one included
  static constexpr std::size_t kInputs = kSpeedTaps + 2 * kUsageTaps;
  using Inputs = std::array<double, kInputs>;

  /// A signal with its past.
  struct Signal {
    explicit Signal(std::size_t length) : past(length) {}
    void observe(double value);
    void exchange(StateExchange& state);

    History past;
    Normaliser scale;
  };

  void learn(double speed, const Usage& usage) override;
  [[nodiscard]] Inputs inputs(const Usage& now) const;
  void remember(const Inputs& inputs, double target);
  void train();

  Signal speed_;
  Signal cpu_;
  Signal memory_;
  Perceptron network_;
  Adam adam_;
  std::vector<double> examples_;  // a ring: inputs and target, one example after the other
  std::int64_t learned_ = 0;      // examples so far
};

}  // namespace isochron
