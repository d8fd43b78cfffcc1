#include "isochron/train/optimizer.h"

#include <utility>

#include <torch/optim.h>

namespace isochron::train {

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Options& options, std::vector<at::Tensor> parameters) {
  using namespace torch::optim;
  const double rate = options.learning_rate;
  const double decay = options.weight_decay;
  if (options.optimizer == "adam") {
    return std::make_unique<Adam>(std::move(parameters), AdamOptions(rate).weight_decay(decay));
  }
  if (options.optimizer == "adamw") {
    return std::make_unique<AdamW>(std::move(parameters), AdamWOptions(rate).weight_decay(decay));
  }
  return std::make_unique<SGD>(std::move(parameters), SGDOptions(rate).momentum(options.momentum).weight_decay(decay));
}

}  // namespace isochron::train
