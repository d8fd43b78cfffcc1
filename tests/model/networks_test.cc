#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "isochron/model/model.h"

namespace isochron::model {
namespace {

constexpr InputShape kMnist{};
constexpr InputShape kCifar{.channels = 3, .height = 32, .width = 32};
constexpr InputShape kImageNet{.channels = 3, .height = 224, .width = 224, .classes = 1'000};
constexpr InputShape kSmallText{.context = 12, .classes = 50};

std::int64_t parameter_count(const Model& model) {
  std::int64_t count = 0;
  for (const auto& parameter : model.parameters()) {
    count += parameter.numel();
  }
  return count;
}

torch::Tensor random_input(std::int64_t samples, const InputShape& input) {
  return input.context > 0 ? torch::randint(input.classes, {samples, input.context}, torch::kLong)
                           : torch::randn({samples, input.channels, input.height, input.width});
}

TEST(NetworksTest, HaveAsManyParametersAsPublished) {
  struct Published {
    std::string spec;
    InputShape input;
    std::int64_t parameters;
  };
  // torchvision's figures for ImageNet; the smallest of GPT-2's, whose output layer shares the embedding's weights.
  for (const auto& [spec, input, parameters] : {
           Published{"alexnet", kImageNet, 61'100'840},
           Published{"gpt2", {.context = 1'024, .classes = 50'257}, 124'439'808},
           Published{"resnet18", kImageNet, 11'689'512},
           Published{"resnet50", kImageNet, 25'557'032},
           Published{"vgg11", kImageNet, 132'863'336},
       }) {
    SCOPED_TRACE(spec);
    const auto model = make_model(spec, input);
    EXPECT_EQ(parameter_count(*model), parameters);
    if (input.context == 0) {
      model->eval();
      const torch::NoGradGuard no_gradients;
      EXPECT_EQ(model->forward(random_input(1, input)).sizes(), (std::vector<std::int64_t>{1, input.classes}));
    }
  }
}

// The loss of one step.
double train(Model& model, torch::optim::Optimizer& optimizer, const torch::Tensor& data, const torch::Tensor& target) {
  optimizer.zero_grad();
  const torch::Tensor loss = torch::cross_entropy_loss(model.forward(data).flatten(0, -2), target.flatten());
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

void expect_to_learn_a_batch(const std::string& spec, const InputShape& input) {
  SCOPED_TRACE(spec);
  torch::manual_seed(1);
  const auto model = make_model(spec, input);
  constexpr std::int64_t kSamples = 8;
  const torch::Tensor data = random_input(kSamples, input);
  const torch::Tensor target = input.context > 0 ? data.roll(-1, 1) : torch::arange(kSamples);
  const torch::Tensor logits = model->forward(data);
  EXPECT_EQ(logits.select(-1, 0).sizes(), target.sizes());
  EXPECT_EQ(logits.size(-1), input.classes);

  torch::optim::Adam optimizer(model->parameters(), 1e-3);
  const double before = train(*model, optimizer, data, target);
  for (const auto& parameter : model->named_parameters()) {
    ASSERT_TRUE(parameter->grad().defined()) << parameter.key();
    EXPECT_GT(parameter->grad().abs().max().item<double>(), 0.0) << parameter.key();
  }
  double after = before;
  for (int step = 0; step < 30; ++step) {
    after = train(*model, optimizer, data, target);
  }
  EXPECT_LT(after, 0.8 * before);
}

TEST(NetworksTest, LearnABatchWithAllTheirParameters) {
  expect_to_learn_a_batch("alexnet:width=8,dropout=0", kMnist);
  expect_to_learn_a_batch("alexnet:width=8", kCifar);
  expect_to_learn_a_batch("cnn:width=8", kMnist);
  expect_to_learn_a_batch("cnn:width=4,batch-norm=on", kCifar);
  expect_to_learn_a_batch("cnn:width=8", {.channels = 2, .height = 5, .width = 30});
  expect_to_learn_a_batch("gpt2:layers=2,heads=2,width=32", kSmallText);
  expect_to_learn_a_batch("mlp", kMnist);
  expect_to_learn_a_batch("mlp:layers=0", kMnist);
  expect_to_learn_a_batch("resnet18:width=8", kMnist);
  expect_to_learn_a_batch("resnet50:width=4", kCifar);
  expect_to_learn_a_batch("vgg11:width=8,dropout=0", kMnist);
  expect_to_learn_a_batch("vgg11:width=8,batch-norm=on", kCifar);
}

TEST(NetworksTest, NameParametersAsTorchvisionDoes) {
  const auto names_of = [](const std::string& spec) { return make_model(spec, kCifar)->named_parameters(); };
  const auto resnet = names_of("resnet18:width=8");
  for (const std::string name : {"conv1.weight", "bn1.bias", "layer2.0.downsample.1.weight", "layer4.1.conv2.weight"}) {
    EXPECT_TRUE(resnet.contains(name)) << name;
  }
  const auto vgg = names_of("vgg11:width=8");
  for (const std::string name : {"features.0.weight", "features.18.bias", "classifier.6.weight"}) {
    EXPECT_TRUE(vgg.contains(name)) << name;
  }
}

TEST(NetworksTest, FollowTheModeWithBatchNormAndDropout) {
  torch::manual_seed(1);
  for (const std::string spec : {"cnn:batch-norm=on", "vgg11:width=8", "resnet18:width=8"}) {
    const auto model = make_model(spec, kCifar);
    const torch::Tensor data = random_input(4, kCifar);
    const torch::NoGradGuard no_gradients;
    model->eval();
    const torch::Tensor first = model->forward(data);
    EXPECT_TRUE(first.equal(model->forward(data))) << spec;
    // Alone or among others: the same.
    EXPECT_TRUE(first.slice(0, 0, 1).allclose(model->forward(data.slice(0, 0, 1)), 1e-4, 1e-5)) << spec;
    model->train();
    EXPECT_FALSE(first.allclose(model->forward(data), 1e-4, 1e-5)) << spec;
  }
}

}  // namespace
}  // namespace isochron::model
