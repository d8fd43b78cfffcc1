#include "isochron/train/optimizer.h"

#include <cmath>
#include <initializer_list>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace isochron::train {
namespace {

using ::testing::ThrowsMessage;

// Where a parameter that begins at 1 is after steps with these gradients. Learning rate 0.1, momentum 0.9.
double trained(const std::string& optimizer, double weight_decay, std::initializer_list<double> gradients) {
  Options options;
  options.optimizer = optimizer;
  options.learning_rate = 0.1;
  options.weight_decay = weight_decay;
  const at::Tensor parameter = torch::ones({1}, torch::kDouble).requires_grad_();
  const auto made = make_optimizer(options, {parameter});
  for (const double gradient : gradients) {
    parameter.mutable_grad() = torch::full({1}, gradient, torch::kDouble);
    made->step();
  }
  return parameter.item<double>();
}

TEST(OptimizerTest, SgdAddsMomentumAndDecay) {
  // The gradient is 0.5 + 0.2 x 1 = 0.7, then 0.5 + 0.2 x 0.93 = 0.686; the momentum 0.7, then 0.9 x 0.7 + 0.686.
  EXPECT_DOUBLE_EQ(trained("sgd", 0.2, {0.5}), 0.93);
  EXPECT_DOUBLE_EQ(trained("sgd", 0.2, {0.5, 0.5}), 0.93 - 0.1316);
  // Nesterov's first update is 0.7 + 0.9 x 0.7.
  EXPECT_DOUBLE_EQ(trained("sgd:nesterov=on", 0.2, {0.5}), 1.0 - 0.133);
}

TEST(OptimizerTest, AdamDividesByTheRootOfTheMeanSquare) {
  // Both means are freed from bias, so the first update is g / (|g| + epsilon) of g = 0.5 + 0.2 x 1 = 0.7.
  EXPECT_NEAR(trained("adam", 0.2, {0.5}), 0.9, 1e-8);
  EXPECT_DOUBLE_EQ(trained("adam:epsilon=0.7", 0.2, {0.5}), 0.95);
  // Gradients 1 and -1: the mean is (0.5 x 0.5 - 0.5) / (1 - 0.25) = -1 / 3, that of the squares stays 1.
  EXPECT_NEAR(trained("adam:beta1=0.5", 0.0, {1.0, -1.0}), 0.9 + 0.1 / 3.0, 1e-8);
  // Gradients 1 and 2: with beta1 = 0 the mean is 2, that of the squares (0.25 x 1 + 0.5 x 4) / 0.75 = 3.
  EXPECT_NEAR(trained("adam:beta1=0,beta2=0.5", 0.0, {1.0, 2.0}), 0.9 - 0.2 / std::sqrt(3.0), 1e-8);
}

TEST(OptimizerTest, AdamWDecaysWeightsApartFromTheGradient) {
  // 1 x (1 - 0.1 x 0.2) - 0.1.
  EXPECT_NEAR(trained("adamw", 0.2, {0.5}), 0.88, 1e-8);
}

TEST(OptimizerTest, SetsTheLearningRateOfAllGroups) {
  const auto group = [] { return torch::optim::OptimizerParamGroup({torch::ones({1})}); };
  torch::optim::SGD optimizer({group(), group()}, torch::optim::SGDOptions(0.1));
  set_learning_rate(optimizer, 0.25);
  for (const auto& each : optimizer.param_groups()) {
    EXPECT_EQ(each.options().get_lr(), 0.25);
  }
}

TEST(OptimizerTest, RefusesUnknownNamesAndOptions) {
  const auto checking = [](const std::string& optimizer, double momentum = 0.9) {
    Options options;
    options.optimizer = optimizer;
    options.momentum = momentum;
    return [options] { check_optimizer(options); };
  };
  EXPECT_THAT(
      checking("lamb"), ThrowsMessage<std::invalid_argument>("optimizer is 'lamb'; permitted: sgd, adam, adamw"));
  EXPECT_THAT(
      checking("adam:nesterov=on"),
      ThrowsMessage<std::invalid_argument>("optimizer adam: option is nesterov; permitted: beta1, beta2, epsilon"));
  EXPECT_THAT(
      checking("adam:beta2=1"),
      ThrowsMessage<std::invalid_argument>("optimizer adam: beta2 is 1; permitted: 0 to 0.999999"));
  EXPECT_THAT(
      checking("sgd:nesterov=on", 0.0),
      ThrowsMessage<std::invalid_argument>("optimizer sgd: nesterov is on; permitted: with a momentum above 0"));
  EXPECT_NO_THROW(checking("adamw:beta1=0")());
}

}  // namespace
}  // namespace isochron::train
