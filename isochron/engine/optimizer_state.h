// What an optimizer has learned (momentum buffers, Adam's moments, step counts) as named tensors, for checkpoints.
//
// Knows SGD, Adam and AdamW of LibTorch. Parameters are addressed by their number over all groups, so the model must
// list them in the same order when it is restored.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::optim {
class Optimizer;
}

namespace isochron {

// Over all groups, in their order.
std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer);

// Throws std::invalid_argument for an optimizer of another class.
std::map<std::string, at::Tensor> optimizer_state(const torch::optim::Optimizer& optimizer);

// Replaces the state; learning rates and other options stay as they are. Throws isochron::Error if the state is of
// another class of optimizer or of parameters of other shapes.
void restore_optimizer_state(torch::optim::Optimizer& optimizer, const std::map<std::string, at::Tensor>& state);

}  // namespace isochron
