// ResNet (He et al. 2016), as torchvision has it: the stride of a bottleneck is in its 3 x 3 convolution. Small images
// enter through one 3 x 3 convolution, as in the paper's networks for CIFAR, instead of 7 x 7 and a pooling.
#include <initializer_list>
#include <string>
#include <vector>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "isochron/model/building_blocks.h"
#include "isochron/model/networks.h"

namespace isochron::model {
namespace {

// Zero padding keeps the size, but for the stride; a BatchNorm follows, so no bias.
torch::nn::Conv2d make_convolution(std::int64_t from, std::int64_t to, std::int64_t kernel, std::int64_t stride) {
  const auto options = torch::nn::Conv2dOptions(from, to, kernel).stride(stride).padding(kernel / 2).bias(false);
  return torch::nn::Conv2d(options);  // NOLINT(modernize-return-braced-init-list): the constructor is explicit
}

struct Layer {
  std::int64_t channels;
  std::int64_t kernel;
  std::int64_t stride;
};

// Convolutions in a row and a way past them.
class ResidualBlockImpl final : public torch::nn::Module {
 public:
  ResidualBlockImpl(std::int64_t channels, const std::vector<Layer>& layers) {
    std::int64_t from = channels;
    std::int64_t stride = 1;
    for (const Layer& layer : layers) {
      const std::string number = std::to_string(convolutions_.size() + 1);
      convolutions_.emplace_back(
          register_module("conv" + number, make_convolution(from, layer.channels, layer.kernel, layer.stride)));
      norms_.emplace_back(register_module("bn" + number, torch::nn::BatchNorm2d(layer.channels)));
      from = layer.channels;
      stride *= layer.stride;
    }
    if (stride != 1 || from != channels) {
      downsample_ = register_module(
          "downsample",
          torch::nn::Sequential(make_convolution(channels, from, 1, stride), torch::nn::BatchNorm2d(from)));
    }
  }

  torch::Tensor forward(const torch::Tensor& input) {
    torch::Tensor output = input;
    for (std::size_t i = 0; i < convolutions_.size(); ++i) {
      output = norms_[i]->forward(convolutions_[i]->forward(i == 0 ? output : output.relu_()));
    }
    return (output + (downsample_.is_empty() ? input : downsample_->forward(input))).relu_();
  }

 private:
  std::vector<torch::nn::Conv2d> convolutions_;
  std::vector<torch::nn::BatchNorm2d> norms_;
  torch::nn::Sequential downsample_ = nullptr;
};
TORCH_MODULE(ResidualBlock);

enum class Kind { kBasic, kBottleneck };

class ResNet final : public Model {
 public:
  ResNet(Kind kind, std::initializer_list<int> blocks, std::int64_t width, const InputShape& input)
      : small_(has_small_images(input)),
        stem_(register_module(
            "conv1",
            small_ ? make_convolution(input.channels, width, 3, 1) : make_convolution(input.channels, width, 7, 2))),
        norm_(register_module("bn1", torch::nn::BatchNorm2d(width))) {
    std::int64_t channels = width;
    for (const int count : blocks) {
      channels = add_stage(kind, count, channels, width << stages_.size());
    }
    initialise_for_relu(*this);
    classifier_ = register_module("fc", torch::nn::Linear(channels, input.classes));
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    torch::Tensor output = norm_->forward(stem_->forward(input)).relu_();
    if (!small_) {
      output = torch::max_pool2d(output, 3, 2, 1);
    }
    for (auto& stage : stages_) {
      output = stage->forward(output);
    }
    return classifier_->forward(output.mean({2, 3}));
  }

 private:
  // Returns the channels that come out of it.
  std::int64_t add_stage(Kind kind, int count, std::int64_t channels, std::int64_t width) {
    torch::nn::Sequential stage;
    for (int block = 0; block < count; ++block) {
      const std::int64_t stride = block == 0 && !stages_.empty() ? 2 : 1;
      const std::vector<Layer> layers = kind == Kind::kBasic
                                            ? std::vector<Layer>{{width, 3, stride}, {width, 3, 1}}
                                            : std::vector<Layer>{{width, 1, 1}, {width, 3, stride}, {4 * width, 1, 1}};
      stage->push_back(ResidualBlock(channels, layers));
      channels = layers.back().channels;
    }
    stages_.emplace_back(register_module("layer" + std::to_string(stages_.size() + 1), stage));
    return channels;
  }

  bool small_;
  torch::nn::Conv2d stem_;
  torch::nn::BatchNorm2d norm_;
  std::vector<torch::nn::Sequential> stages_;
  torch::nn::Linear classifier_ = nullptr;
};

}  // namespace

void ResNetOptions::describe(OptionTable& table) {
  table.integer("width", width, 1, 4'096, "channels of the first stage; all else grows with it");
}

std::shared_ptr<Model> make_resnet18(const ResNetOptions& options, const InputShape& input) {
  return std::make_shared<ResNet>(Kind::kBasic, std::initializer_list<int>{2, 2, 2, 2}, options.width, input);
}

std::shared_ptr<Model> make_resnet50(const ResNetOptions& options, const InputShape& input) {
  return std::make_shared<ResNet>(Kind::kBottleneck, std::initializer_list<int>{3, 4, 6, 3}, options.width, input);
}

}  // namespace isochron::model
