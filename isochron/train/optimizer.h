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

// options.optimizer is a name with options: "sgd:nesterov=on", "adam" or "adamw:beta2=0.95,epsilon=1e-6". Weight decay
// is part of the gradient for sgd and adam, and apart from it for adamw (Loshchilov and Hutter 2019). Throws
// std::invalid_argument naming the option, the value and what is permitted; what all optimizers have in common has been
// checked by validate().
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Options& options, std::vector<at::Tensor> parameters);

// Throws what make_optimizer would.
void check_optimizer(const Options& options);

// For all parameters.
void set_learning_rate(torch::optim::Optimizer& optimizer, double rate);

}  // namespace isochron::train
