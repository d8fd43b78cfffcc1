// Multiplies the learning rate that the user set by the job's factor for the length of a step; between two steps the
// optimizer has the user's own rate, for schedulers to read and change.
//
// A change in the middle of a step, after the optimizer's, is kept too, unless it is to the very rate in force: set
// rates between steps where a factor is in use.
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

  // Every group's rate times `factor`, until restore().
  void apply(double factor);
  void restore();

 private:
  struct Group {
    double base = 0.0;
    double applied = 0.0;
  };

  torch::optim::Optimizer* optimizer_;
  std::vector<Group> groups_;  // empty between steps
};

}  // namespace isochron
