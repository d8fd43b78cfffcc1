// VGG-11 (Simonyan and Zisserman 2015, configuration A) with the layers of torchvision's. For small images the
// classifier sees one place instead of 7 x 7, and its hidden layers have an eighth of the units.
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "isochron/model/building_blocks.h"
#include "isochron/model/networks.h"

namespace isochron::model {
namespace {

constexpr std::int64_t kPool = 0;
// Multiples of the width.
constexpr std::int64_t kPlan[] = {1, kPool, 2, kPool, 4, 4, kPool, 8, 8, kPool, 8, 8, kPool};

torch::nn::Sequential make_features(const VggOptions& options, std::int64_t channels, bool small) {
  torch::nn::Sequential features;
  for (const std::int64_t multiple : kPlan) {
    if (multiple == kPool) {
      // Rounding up leaves one place of MNIST's 28 pixels after five poolings, not none.
      features->push_back(torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(2).ceil_mode(small)));
      continue;
    }
    const std::int64_t width = multiple * options.width;
    features->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, width, 3).padding(1)));
    if (options.batch_norm) {
      features->push_back(torch::nn::BatchNorm2d(width));
    }
    features->push_back(torch::nn::ReLU(true));
    channels = width;
  }
  return features;
}

}  // namespace

void VggOptions::describe(OptionTable& table) {
  table.integer("width", width, 1, 4'096, "channels of the first convolution; all else grows with it");
  table.flag("batch-norm", batch_norm, "BatchNorm after every convolution");
  table.number("dropout", dropout, 0.0, 0.99, "after the two hidden linear layers");
}

std::shared_ptr<Model> make_vgg11(const VggOptions& options, const InputShape& input) {
  using namespace torch::nn;
  const bool small = has_small_images(input);
  const std::int64_t places = small ? 1 : 7;
  const std::int64_t hidden = (small ? 8 : 64) * options.width;
  auto features = make_features(options, input.channels, small);
  features->push_back(AdaptiveAvgPool2d(places));
  Sequential classifier(
      Linear(8 * options.width * places * places, hidden),
      ReLU(true),
      Dropout(options.dropout),
      Linear(hidden, hidden),
      ReLU(true),
      Dropout(options.dropout),
      Linear(hidden, input.classes));
  initialise_for_relu(*features);
  initialise_for_relu(*classifier);
  return make_feed_forward(features, classifier);
}

}  // namespace isochron::model
