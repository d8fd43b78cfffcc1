// Multiplies the learning rate that the user set by the job's factor, without taking it out of the user's hands: a
// change between two steps (a scheduler, a plain set_lr) is noticed and becomes the new base.
#pragma once

#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace isochron {

class LearningRate {
 public:
  // `optimizer` must outlive this.
  explicit LearningRate(torch::optim::Optimizer& optimizer) : optimizer_(&optimizer) {}

  // Sets every group's rate to its base times `factor`.
  void apply(double factor);

 private:
  struct Group {
    double base = 0.0;
    double applied = 0.0;  // what we set last; anything else was set by the user
  };

  torch::optim::Optimizer* optimizer_;
  std::vector<Group> groups_;
};

}  // namespace isochron
