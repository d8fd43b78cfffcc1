#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include "isochron/model/building_blocks.h"
#include "isochron/model/networks.h"

namespace isochron::model {

void MlpOptions::describe(OptionTable& table) {
  table.integer("hidden", hidden, 1, 65'536, "units of a hidden layer");
  table.integer("layers", layers, 0, 1'000, "hidden layers");
}

std::shared_ptr<Model> make_mlp(const MlpOptions& options, const InputShape& input) {
  torch::nn::Sequential classifier;
  std::int64_t units = input.channels * input.height * input.width;
  for (std::int64_t layer = 0; layer < options.layers; ++layer) {
    classifier->push_back(torch::nn::Linear(units, options.hidden));
    classifier->push_back(torch::nn::ReLU());
    units = options.hidden;
  }
  classifier->push_back(torch::nn::Linear(units, input.classes));
  return make_feed_forward(torch::nn::Sequential(torch::nn::Identity()), classifier);
}

}  // namespace isochron::model
