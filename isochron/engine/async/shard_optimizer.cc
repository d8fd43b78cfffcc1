#include "isochron/engine/async/shard_optimizer.h"

#include <stdexcept>
#include <vector>

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "isochron/core/rate/rate.h"

namespace isochron {
namespace {

using torch::optim::Optimizer;

// Null unless `original` is of this class.
template <class Class, class Options>
std::unique_ptr<Class> made_like(const Optimizer& original, std::size_t group, const at::Tensor& values) {
  if (dynamic_cast<const Class*>(&original) == nullptr) {
    return nullptr;
  }
  const auto& options = static_cast<const Options&>(original.param_groups()[group].options());
  return std::make_unique<Class>(std::vector<at::Tensor>{values}, options);
}

}  // namespace

std::unique_ptr<Optimizer> shard_optimizer(
    const Optimizer& original, std::size_t group, const at::Tensor& values, std::int64_t corrected_for_workers) {
  using namespace torch::optim;
  if (auto sgd = made_like<SGD, SGDOptions>(original, group, values)) {
    if (corrected_for_workers > 0) {
      auto& options = static_cast<SGDOptions&>(sgd->param_groups().front().options());
      options.momentum(asynchronous_momentum(options.momentum(), corrected_for_workers));
    }
    return sgd;
  }
  if (auto adam = made_like<Adam, AdamOptions>(original, group, values)) {
    return adam;
  }
  if (auto adamw = made_like<AdamW, AdamWOptions>(original, group, values)) {
    return adamw;
  }
  throw std::invalid_argument("the optimizer is of an unknown class; permitted: SGD, Adam, AdamW");
}

}  // namespace isochron
