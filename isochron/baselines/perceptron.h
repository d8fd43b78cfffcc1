// A network with one hidden layer and one output:
//
//   y = c + sum_h u_h s(b_h + sum_i w_hi x_i),   s(z) = z / sqrt(1 + z^2)
//
// s is shaped like tanh but rounds the same on every platform. The weights begin as fixed pseudo-random numbers and the
// output weights at 0, so that an untrained network says 0. O(inputs x hidden) for an output as for a gradient.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "isochron/core/state.h"

namespace isochron {

class Perceptron {
 public:
  Perceptron(std::size_t inputs, std::size_t hidden);

  [[nodiscard]] double output(std::span<const double> inputs) const;

  /// Adds `scale` times the gradient of the output, at `inputs`, to `gradient`, in the order of parameters(). A loss
  /// L(y) has dL/dy as its scale.
  void add_gradient(std::span<const double> inputs, double scale, std::span<double> gradient) const;

  [[nodiscard]] std::span<double> parameters() { return parameters_; }
  [[nodiscard]] std::size_t size() const { return parameters_.size(); }

  void exchange(StateExchange& state);

 private:
  // b_h and w_h1 ... w_hn of one hidden unit after the other, then u, then c.
  [[nodiscard]] double activation(std::size_t unit, std::span<const double> inputs) const;
  [[nodiscard]] std::size_t output_weights() const { return hidden_ * (inputs_ + 1); }

  std::size_t inputs_;
  std::size_t hidden_;
  std::vector<double> parameters_;
};

}  // namespace isochron
