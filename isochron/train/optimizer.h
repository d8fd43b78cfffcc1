// The optimizers that Isochron knows by name.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "isochron/train/options.h"

namespace torch::optim {
class Optimizer;
}

namespace isochron::train {

// options.optimizer is sgd, adam or adamw, which validate() has checked.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Options& options, std::vector<at::Tensor> parameters);

}  // namespace isochron::train
