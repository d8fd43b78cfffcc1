#include "isochron/model/building_blocks.h"

#include <algorithm>
#include <utility>

#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

namespace isochron::model {
namespace {

class FeedForward final : public Model {
 public:
  FeedForward(torch::nn::Sequential features, torch::nn::Sequential classifier)
      : features_(register_module("features", std::move(features))),
        classifier_(register_module("classifier", std::move(classifier))) {}

  torch::Tensor forward(const torch::Tensor& input) override {
    return classifier_->forward(features_->forward(input).flatten(1));
  }

 private:
  torch::nn::Sequential features_;
  torch::nn::Sequential classifier_;
};

template <class Layer, class Fan>
void initialise(Layer& layer, Fan fan) {
  torch::nn::init::kaiming_normal_(layer.weight, 0.0, fan, torch::kReLU);
  if (layer.bias.defined()) {
    torch::nn::init::zeros_(layer.bias);
  }
}

}  // namespace

bool has_small_images(const InputShape& input) {
  constexpr std::int64_t kSmall = 64;
  return std::max(input.height, input.width) <= kSmall;
}

std::shared_ptr<Model> make_feed_forward(torch::nn::Sequential features, torch::nn::Sequential classifier) {
  return std::make_shared<FeedForward>(std::move(features), std::move(classifier));
}

void initialise_for_relu(torch::nn::Module& net) {
  for (const auto& module : net.modules(/*include_self=*/false)) {
    if (auto* convolution = module->as<torch::nn::Conv2d>()) {
      initialise(*convolution, torch::kFanOut);  // as torchvision does: it is the gradients' variance
    } else if (auto* linear = module->as<torch::nn::Linear>()) {
      initialise(*linear, torch::kFanIn);  // a classifier has few outputs
    }
  }
}

}  // namespace isochron::model
