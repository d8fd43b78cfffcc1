// What several networks are put together from.
#pragma once

#include <memory>

#include <torch/nn/modules/container/sequential.h>

#include "isochron/model/model.h"

namespace isochron::model {

// Pictures of at most 64 pixels (MNIST, CIFAR) keep more of their resolution than ImageNet's.
bool has_small_images(const InputShape& input);

// Features of images, flattened, to a classifier.
std::shared_ptr<Model> make_feed_forward(torch::nn::Sequential features, torch::nn::Sequential classifier);

// Normal weights that keep the variance through ReLU (He et al. 2015) and biases 0, for all convolutions and linear
// layers within; without it, deep networks that have no BatchNorm begin very slowly.
void initialise_for_relu(torch::nn::Module& net);

}  // namespace isochron::model
