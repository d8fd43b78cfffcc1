#include "isochron/engine/learning_rate.h"

#include <torch/optim/optimizer.h>

namespace isochron {

void LearningRate::apply(double factor) {
  restore();  // a step that was begun and dealt again
  for (auto& parameters : optimizer_->param_groups()) {
    const double base = parameters.options().get_lr();
    groups_.push_back({.base = base, .applied = base * factor});
    parameters.options().set_lr(base * factor);
  }
}

void LearningRate::restore() {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    auto& options = optimizer_->param_groups()[i].options();
    if (options.get_lr() == groups_[i].applied) {
      options.set_lr(groups_[i].base);
    }
  }
  groups_.clear();
}

}  // namespace isochron
