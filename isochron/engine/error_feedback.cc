#include "isochron/engine/error_feedback.h"

#include <cstdint>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "isochron/core/error.h"

namespace isochron {
namespace {

std::int64_t total_size(const std::vector<at::Tensor>& tensors) {
  std::int64_t size = 0;
  for (const at::Tensor& tensor : tensors) {
    size += tensor.numel();
  }
  return size;
}

}  // namespace

ErrorFeedback::ErrorFeedback(std::vector<at::Tensor> parameters, int members)
    : parameters_(std::move(parameters)), members_(members) {
}

at::ScalarType ErrorFeedback::wide(const std::vector<at::Tensor>& tensors) {
  at::ScalarType type = at::kFloat;
  for (const at::Tensor& tensor : tensors) {
    type = at::promote_types(type, tensor.scalar_type());
  }
  return type;
}

at::Tensor ErrorFeedback::of(const std::vector<at::Tensor>& parameters) const {
  const at::NoGradGuard no_grad;
  const auto options = parameters.front().options().dtype(wide(parameters)).requires_grad(false);
  at::Tensor all = at::zeros({total_size(parameters)}, options);
  std::int64_t first = 0;
  for (const at::Tensor& parameter : parameters) {
    const auto found = errors_.find(parameter.unsafeGetTensorImpl());
    if (found != errors_.end()) {
      all.narrow(0, first, parameter.numel()).copy_(found->second);
    }
    first += parameter.numel();
  }
  return all;
}

void ErrorFeedback::set(const std::vector<at::Tensor>& parameters, const at::Tensor& errors) {
  std::int64_t first = 0;
  for (const at::Tensor& parameter : parameters) {
    errors_[parameter.unsafeGetTensorImpl()] = errors.narrow(0, first, parameter.numel());
    first += parameter.numel();
  }
}

void ErrorFeedback::follow(int members) {
  if (members != members_) {
    const double factor = static_cast<double>(members) / std::exchange(members_, members);
    for (auto& [parameter, error] : errors_) {
      error = error * factor;
    }
  }
  remember();
}

at::Tensor ErrorFeedback::mean(const Group& group) const {
  std::vector<at::Tensor> sum{of(parameters_).div_(members_)};
  group->allreduce(sum)->wait();
  return sum.front();
}

void ErrorFeedback::restore(const at::Tensor& mean) {
  if (!mean.defined()) {
    errors_.clear();
    remember();
    return;
  }
  if (mean.numel() != total_size(parameters_)) {
    throw Error(
        "the checkpoint says what int8 owes to " + std::to_string(mean.numel()) + " numbers of a model, this one has " +
        std::to_string(total_size(parameters_)));
  }
  set(parameters_, mean.to(parameters_.front().device(), wide(parameters_)));
  remember();
}

}  // namespace isochron
