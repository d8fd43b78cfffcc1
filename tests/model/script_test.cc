#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/own_path.h"
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "isochron/core/error.h"
#include "isochron/model/model.h"

namespace isochron::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr InputShape kInput{.channels = 1, .height = 2, .width = 2, .classes = 3};

torch::jit::Module linear_layer() {
  torch::jit::Module layer("Layer");
  layer.register_parameter("weight", torch::ones({3, 4}).requires_grad_(), false);
  layer.define("def forward(self, x):\n  return torch.linear(x, self.weight)\n");
  return layer;
}

// Four pixels to three classes, and a BatchNorm of the three; `more` comes between. The layer is there under two names.
torch::jit::Module whole_net(const std::string& more = "") {
  torch::jit::Module net("Net");
  const torch::jit::Module layer = linear_layer();
  net.register_module("layer", layer);
  net.register_module("same_layer", layer);
  net.register_buffer("mean", torch::zeros({3}));
  net.register_buffer("var", torch::ones({3}));
  net.register_buffer("steps", torch::zeros({}));
  net.register_attribute("training", c10::BoolType::get(), false);
  net.define(
      "def forward(self, x):\n"
      "  y = self.layer.forward(x.flatten(1))\n" +
      more + "  return torch.batch_norm(y, None, None, self.mean, self.var, self.training, 0.5, 1e-5, False)\n");
  return net;
}

// A file that goes with the test.
class ScriptTest : public testing::Test {
 protected:
  ~ScriptTest() override { std::filesystem::remove(path_); }

  std::shared_ptr<Model> load(const torch::jit::Module& module, const InputShape& input = kInput) {
    module.save(path_.string());
    return make_model(spec(), input);
  }
  std::string spec() const { return "script:" + path_.string(); }

  std::filesystem::path path_ = own_path(".pt");
};

TEST_F(ScriptTest, HasTheParametersAndBuffersOfTheFileOnce) {
  const auto model = load(whole_net());
  EXPECT_THAT(model->named_parameters().keys(), ElementsAre("layer.weight"));
  EXPECT_THAT(model->named_buffers().keys(), ElementsAre("mean", "var", "steps"));
  EXPECT_TRUE(model->parameters().front().requires_grad());
}

TEST_F(ScriptTest, TrainsThroughTheRegisteredTensors) {
  torch::manual_seed(1);
  const auto model = load(whole_net());
  const torch::Tensor data = torch::randn({6, 1, 2, 2});
  const torch::Tensor target = data.flatten(1).slice(1, 0, 3).argmax(1);
  torch::optim::SGD optimizer(model->parameters(), 1.0);
  std::vector<double> losses;
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    const torch::Tensor loss = torch::cross_entropy_loss(model->forward(data), target);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  EXPECT_NEAR(losses.front(), std::log(3.0), 1e-4);  // three equal rows of weights
  EXPECT_LT(losses.back(), 0.8 * losses.front());
  EXPECT_GT(model->buffers().front().abs().max().item<double>(), 0.0);  // the running mean has moved
}

TEST_F(ScriptTest, FollowsModeAndType) {
  const auto model = load(whole_net());
  // Pixels 0 and 1: their sums are 0 and 4. In evaluation the running statistics (mean 0, variance 1) leave them as
  // they are but for epsilon; in training the batch's own (mean 2, variance 4) make them -1 and 1.
  const torch::Tensor data = torch::arange(2, torch::kDouble).view({2, 1, 1, 1}).expand({2, 1, 2, 2});
  model->to(torch::kDouble);
  model->eval();
  EXPECT_NEAR(model->forward(data)[1][0].item<double>(), 4.0 / std::sqrt(1.0 + 1e-5), 1e-12);
  model->train();
  EXPECT_NEAR(model->forward(data)[1][0].item<double>(), 2.0 / std::sqrt(4.0 + 1e-5), 1e-12);
  EXPECT_NEAR(model->buffers().front()[0].item<double>(), 1.0, 1e-12);  // half way from 0 to the mean of 2
}

// What the job's own BatchNorm rests on: the dispatcher is asked for batch_norm, which an optimised graph would not do
// from the second training step on.
TEST_F(ScriptTest, CallsBatchNormThroughTheDispatcher) {
  static int calls;
  calls = 0;
  const auto model = load(whole_net());
  const auto count = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    if (std::string(function.name()) == "aten::batch_norm") {
      ++calls;
      EXPECT_FALSE(torch::jit::getGraphExecutorOptimize());
    }
    return nullptr;
  };
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(count));
  for (int step = 1; step <= 3; ++step) {
    model->forward(torch::randn({4, 1, 2, 2})).sum().backward();
    EXPECT_EQ(calls, step);
  }
  at::removeCallback(handle);
  EXPECT_TRUE(torch::jit::getGraphExecutorOptimize());  // for the rest of the program
}

TEST_F(ScriptTest, RefusesAFileThatCannotBeRead) {
  EXPECT_THAT(
      [&] { make_model(spec(), kInput); },
      ThrowsMessage<std::invalid_argument>(
          "model is '" + spec() +
          "'; permitted: a TorchScript file, as torch.jit.save writes it (there is no such file)"));
  std::ofstream(path_) << "not a model";
  EXPECT_THAT(
      [&] { make_model(spec(), kInput); },
      ThrowsMessage<std::invalid_argument>(AllOf(
          StartsWith(
              "model is '" + spec() + "'; permitted: a TorchScript file, as torch.jit.save writes it (LibTorch: "),
          Not(HasSubstr(". ")),
          Not(HasSubstr("\n")))));
}

TEST_F(ScriptTest, RefusesAFileThatDoesNotFitTheData) {
  whole_net().save(path_.string());
  EXPECT_THAT(
      [&] { make_model(spec(), {.channels = 1, .height = 2, .width = 2, .classes = 10}); },
      ThrowsMessage<std::invalid_argument>(
          "model script: the output of " + path_.string() + " is [2, 3]; permitted: [2, 10]"));
  EXPECT_THAT(
      [&] { make_model(spec(), {}); },
      ThrowsMessage<std::invalid_argument>(AllOf(
          StartsWith("model script: " + path_.string() + " does not take an input of [2, 1, 28, 28]: "),
          HasSubstr("mat1 and mat2"),
          testing::Not(HasSubstr("\n")))));
}

TEST_F(ScriptTest, RefusesAFileWithoutParameters) {
  torch::jit::Module net("Net");
  net.define("def forward(self, x):\n  return x.flatten(1).slice(1, 0, 3)\n");
  EXPECT_THAT(
      [&] { load(net); }, ThrowsMessage<std::invalid_argument>(EndsWith("permitted: a module that was not frozen")));
}

TEST_F(ScriptTest, RefusesABufferThatIsReplaced) {
  const torch::jit::Module net = whole_net("  if self.training:\n    self.steps = self.steps + 1\n");
  const auto model = load(net);
  EXPECT_THAT(
      [&] { model->forward(torch::randn({4, 1, 2, 2})); },
      ThrowsMessage<std::invalid_argument>(
          "model script: forward() assigns a new tensor to buffer steps; permitted: changes in place"));
}

}  // namespace
}  // namespace isochron::model
