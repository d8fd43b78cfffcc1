#include "isochron/engine/optimizer_copies.h"

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

#include "isochron/engine/optimizer_state.h"

namespace isochron {
namespace {

// Into the memory of `copy`, if it is of that shape.
void copy_into(at::Tensor& copy, const at::Tensor& tensor) {
  if (copy.defined() && copy.sizes() == tensor.sizes() && copy.options().type_equal(tensor.options())) {
    copy.copy_(tensor);
  } else {
    copy = tensor.detach().clone();
  }
}

}  // namespace

void OptimizerCopies::take() {
  if (taken_) {
    return;
  }
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> parameters = parameters_of(*optimizer_);
  parameters_.resize(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    copy_into(parameters_[i], parameters[i].detach());
  }
  const std::map<std::string, at::Tensor> state = optimizer_state(*optimizer_);
  std::erase_if(state_, [&](const auto& entry) { return !state.contains(entry.first); });
  for (const auto& [name, tensor] : state) {
    copy_into(state_[name], tensor);
  }
  taken_ = true;
}

void OptimizerCopies::restore() {
  if (!taken_) {
    return;
  }
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parameters = parameters_of(*optimizer_);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].copy_(parameters_[i]);
  }
  restore_optimizer_state(*optimizer_, state_);
}

}  // namespace isochron
