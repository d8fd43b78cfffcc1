#include "isochron/engine/learning_rate.h"

#include <torch/optim/optimizer.h>

namespace isochron {

void LearningRate::apply(double factor) {
  auto& parameter_groups = optimizer_->param_groups();
  groups_.resize(parameter_groups.size());
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    auto& options = parameter_groups[i].options();
    Group& group = groups_[i];
    if (options.get_lr() != group.applied) {
      group.base = options.get_lr();
    }
    group.applied = group.base * factor;
    options.set_lr(group.applied);
  }
}

}  // namespace isochron
