// After LeNet-5 (LeCun et al. 1998): two convolutions of 5 x 5, each with a pooling of 2 x 2, and two linear layers.
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "isochron/model/building_blocks.h"
#include "isochron/model/networks.h"

namespace isochron::model {
namespace {

void add_convolution(torch::nn::Sequential& features, std::int64_t from, std::int64_t to, bool batch_norm) {
  features->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 5).padding(2)));
  if (batch_norm) {
    features->push_back(torch::nn::BatchNorm2d(to));
  }
  features->push_back(torch::nn::ReLU(true));
  features->push_back(torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(2).ceil_mode(true)));
}

}  // namespace

void CnnOptions::describe(OptionTable& table) {
  table.integer("width", width, 1, 4'096, "channels of the first convolution; all else grows with it");
  table.flag("batch-norm", batch_norm, "BatchNorm after every convolution");
}

std::shared_ptr<Model> make_cnn(const CnnOptions& options, const InputShape& input) {
  torch::nn::Sequential features;
  add_convolution(features, input.channels, options.width, options.batch_norm);
  add_convolution(features, options.width, 2 * options.width, options.batch_norm);
  const auto pooled_twice = [](std::int64_t pixels) { return (pixels + 3) / 4; };
  const std::int64_t units = 2 * options.width * pooled_twice(input.height) * pooled_twice(input.width);
  const std::int64_t hidden = 8 * options.width;
  return make_feed_forward(
      features,
      torch::nn::Sequential(
          torch::nn::Linear(units, hidden), torch::nn::ReLU(true), torch::nn::Linear(hidden, input.classes)));
}

}  // namespace isochron::model
