// Copies of what an optimizer changes, its parameters and its own state, for when a step did not happen in which it has
// taken its own. Costs about what the optimizer's step does.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::optim {
class Optimizer;
}

namespace isochron {

class OptimizerCopies {
 public:
  // `optimizer` must outlive this.
  explicit OptimizerCopies(torch::optim::Optimizer& optimizer) : optimizer_(&optimizer) {}

  // What they are now is what restore() gives back, until forget(): the first call counts.
  void take();
  // Nothing if none were taken.
  void restore();
  void forget() { taken_ = false; }

 private:
  torch::optim::Optimizer* optimizer_;
  bool taken_ = false;
  std::vector<at::Tensor> parameters_;  // kept from step to step: memory that need not be asked for again
  std::map<std::string, at::Tensor> state_;
};

}  // namespace isochron
