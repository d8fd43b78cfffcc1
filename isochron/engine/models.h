// What a program gives a job to train: models, their optimizers, and backward passes.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace isochron {

// Things that outlive this, as an argument: f(x) and f({x, y}) both work, whatever classes x and y are derived to.
template <class T>
class OneOrMore {
 public:
  OneOrMore() = default;
  OneOrMore(T& one) : all_{&one} {}
  OneOrMore(std::initializer_list<std::reference_wrapper<T>> several) {
    for (const std::reference_wrapper<T>& one : several) {
      all_.push_back(&one.get());
    }
  }

  const std::vector<T*>& all() const { return all_; }
  bool empty() const { return all_.empty(); }
  std::size_t size() const { return all_.size(); }
  T& operator[](std::size_t i) const { return *all_[i]; }

 private:
  std::vector<T*> all_;
};

using Models = OneOrMore<torch::nn::Module>;
using Optimizers = OneOrMore<torch::optim::Optimizer>;

// One of the backward passes of a step.
struct BackwardPass {
  Optimizers optimizers;      // whose parameters it is for; none: for all parameters, and the last pass of its step
  bool retain_graph = false;  // another pass goes through what this one goes through

  bool is_last() const { return optimizers.empty(); }
};

}  // namespace isochron
