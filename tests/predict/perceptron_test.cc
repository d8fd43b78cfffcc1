#include "isochron/baselines/perceptron.h"

#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "isochron/baselines/adam.h"
#include "isochron/core/random/random.h"

namespace isochron {
namespace {

TEST(PerceptronTest, SaysZeroBeforeTraining) {
  const Perceptron network(3, 5);
  EXPECT_EQ(network.output(std::array{1.0, -2.0, 3.0}), 0.0);
}

TEST(PerceptronTest, ComputesItsEquation) {
  Perceptron network(2, 1);
  const std::array parameters{0.5, 2.0, -1.0, 3.0, 0.25};  // b, w, w, u, c
  std::ranges::copy(parameters, network.parameters().begin());
  // z = 0.5 + 2 x 0.625 - 1 = 0.75, s(z) = 0.75 / sqrt(1 + 0.5625) = 0.75 / 1.25 = 0.6, y = 0.25 + 3 x 0.6
  EXPECT_DOUBLE_EQ(network.output(std::array{0.625, 1.0}), 2.05);
}

TEST(PerceptronTest, GradientAgreesWithFiniteDifferences) {
  Perceptron network(4, 6);
  Random random({9});
  for (double& parameter : network.parameters()) {
    parameter = 2.0 * random.uniform() - 1.0;
  }
  const std::array inputs{0.3, -1.2, 2.0, 0.7};
  std::vector<double> gradient(network.size(), 1.0);  // 1: it must be added to, not replaced
  network.add_gradient(inputs, -2.5, gradient);
  constexpr double kShift = 1e-5;  // the error of a central difference is of the order of its square
  for (std::size_t i = 0; i < network.size(); ++i) {
    double& parameter = network.parameters()[i];
    const double middle = parameter;
    parameter = middle + kShift;
    const double above = network.output(inputs);
    parameter = middle - kShift;
    const double below = network.output(inputs);
    parameter = middle;
    EXPECT_NEAR(gradient[i], 1.0 - 2.5 * (above - below) / (2.0 * kShift), 1e-8) << i;
  }
}

TEST(PerceptronTest, LearnsAFunctionThatIsNotLinear) {
  // y = x1 x2 on the square of side 2 has variance 1/9 and no linear part at all.
  Perceptron network(2, 8);
  Adam adam(network.size(), 0.01);
  Random random({13});
  double late = 0.0;
  constexpr int kSteps = 20000;
  for (int k = 0; k < kSteps; ++k) {
    const std::array inputs{2.0 * random.uniform() - 1.0, 2.0 * random.uniform() - 1.0};
    const double error = network.output(inputs) - inputs[0] * inputs[1];
    late += k >= kSteps - 1000 ? error * error / 1000.0 : 0.0;
    std::vector<double> gradient(network.size(), 0.0);
    network.add_gradient(inputs, error, gradient);
    adam.step(network.parameters(), gradient);
  }
  EXPECT_LT(late, 0.05 / 9.0);
}

TEST(AdamTest, FirstStepIsTheRateInTheDirectionOfDescent) {
  // Both moments are corrected for their start at 0, so the first step is rate x g / |g| per parameter.
  Adam adam(2, 0.1);
  std::array parameters{1.0, 1.0};
  adam.step(parameters, std::array{1e-3, -50.0});
  EXPECT_NEAR(parameters[0], 0.9, 1e-4);
  EXPECT_NEAR(parameters[1], 1.1, 1e-4);
}

}  // namespace
}  // namespace isochron
