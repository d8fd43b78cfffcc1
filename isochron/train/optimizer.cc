#include "isochron/train/optimizer.h"

#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include <torch/optim.h>

#include "isochron/core/options.h"

namespace isochron::train {
namespace {

using OptimizerPointer = std::unique_ptr<torch::optim::Optimizer>;
using Parameters = std::vector<at::Tensor>;

OptimizerPointer make_sgd(OptionTable& table, const Options& options, Parameters parameters) {
  bool nesterov = false;
  table.flag("nesterov", nesterov, "look ahead along the momentum");
  table.finish();
  if (nesterov && options.momentum == 0.0) {
    throw std::invalid_argument("optimizer sgd: nesterov is on; permitted: with a momentum above 0");
  }
  return std::make_unique<torch::optim::SGD>(
      std::move(parameters),
      torch::optim::SGDOptions(options.learning_rate)
          .momentum(options.momentum)
          .weight_decay(options.weight_decay)
          .nesterov(nesterov));
}

// Adam or AdamW.
template <class Optimizer, class OptimizerOptions>
OptimizerPointer make_adam(OptionTable& table, const Options& options, Parameters parameters) {
  constexpr double kBelowOne = 0.999999;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  table.number("beta1", beta1, 0.0, kBelowOne, "decay of the mean of gradients");
  table.number("beta2", beta2, 0.0, kBelowOne, "decay of the mean of their squares");
  table.number("epsilon", epsilon, 0.0, 1.0, "added to the root of the latter");
  table.finish();
  return std::make_unique<Optimizer>(
      std::move(parameters),
      OptimizerOptions(options.learning_rate)
          .betas(std::tuple(beta1, beta2))
          .eps(epsilon)
          .weight_decay(options.weight_decay));
}

}  // namespace

OptimizerPointer make_optimizer(const Options& options, Parameters parameters) {
  using namespace torch::optim;
  const Specification specification = Specification::parse("optimizer", options.optimizer);
  const std::string& name = specification.name;
  OptionTable table(specification);
  if (name == "sgd") {
    return make_sgd(table, options, std::move(parameters));
  }
  if (name == "adam") {
    return make_adam<Adam, AdamOptions>(table, options, std::move(parameters));
  }
  if (name == "adamw") {
    return make_adam<AdamW, AdamWOptions>(table, options, std::move(parameters));
  }
  throw std::invalid_argument("optimizer is '" + name + "'; permitted: sgd, adam, adamw");
}

void check_optimizer(const Options& options) {
  (void)make_optimizer(options, {});
}

void set_learning_rate(torch::optim::Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) {
    group.options().set_lr(rate);
  }
}

}  // namespace isochron::train
