// AlexNet (Krizhevsky 2014, "One weird trick") with the layers of torchvision's. For small images the first
// convolution is 3 x 3 with stride 2 instead of 11 x 11 with stride 4, and the classifier sees 2 x 2 instead of 6 x 6
// places.
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "isochron/model/building_blocks.h"
#include "isochron/model/networks.h"

namespace isochron::model {

void AlexNetOptions::describe(OptionTable& table) {
  table.integer("width", width, 1, 4'096, "channels of the first convolution; all else grows with it");
  table.number("dropout", dropout, 0.0, 0.99, "before the two hidden linear layers");
}

std::shared_ptr<Model> make_alexnet(const AlexNetOptions& options, const InputShape& input) {
  using namespace torch::nn;
  const bool small = has_small_images(input);
  const std::int64_t width = options.width;
  const std::int64_t hidden = 64 * width;
  const std::int64_t places = small ? 2 : 6;
  const auto convolution = [](std::int64_t from, std::int64_t to, std::int64_t kernel) {
    return Conv2d(Conv2dOptions(from, to, kernel).padding(kernel / 2));
  };
  const auto first = small ? Conv2dOptions(input.channels, width, 3).stride(2).padding(1)
                           : Conv2dOptions(input.channels, width, 11).stride(4).padding(2);
  const auto pool = MaxPool2dOptions(3).stride(2).padding(small ? 1 : 0);
  Sequential features(
      Conv2d(first),
      ReLU(true),
      MaxPool2d(pool),
      convolution(width, 3 * width, 5),
      ReLU(true),
      MaxPool2d(pool),
      convolution(3 * width, 6 * width, 3),
      ReLU(true),
      convolution(6 * width, 4 * width, 3),
      ReLU(true),
      convolution(4 * width, 4 * width, 3),
      ReLU(true),
      MaxPool2d(pool),
      AdaptiveAvgPool2d(places));
  Sequential classifier(
      Dropout(options.dropout),
      Linear(4 * width * places * places, hidden),
      ReLU(true),
      Dropout(options.dropout),
      Linear(hidden, hidden),
      ReLU(true),
      Linear(hidden, input.classes));
  initialise_for_relu(*features);
  initialise_for_relu(*classifier);
  return make_feed_forward(features, classifier);
}

}  // namespace isochron::model
