#include "isochron/baselines/perceptron.h"

#include <cmath>

#include "isochron/core/random/random.h"

namespace isochron {
namespace {

constexpr std::uint64_t kWeightsKey = 0x6e617278;

double squash(double z) {
  return z / std::sqrt(1.0 + z * z);
}

double squash_slope(double z) {
  const double square = 1.0 + z * z;
  return 1.0 / (square * std::sqrt(square));
}

}  // namespace

Perceptron::Perceptron(std::size_t inputs, std::size_t hidden)
    : inputs_(inputs), hidden_(hidden), parameters_(hidden * (inputs + 2) + 1, 0.0) {
  // Uniform with variance 1 / inputs: activations neither vanish nor saturate for inputs of variance 1.
  const double bound = std::sqrt(3.0 / static_cast<double>(inputs));
  Random random({kWeightsKey});
  for (std::size_t i = 0; i < output_weights(); ++i) {
    parameters_[i] = bound * (2.0 * random.uniform() - 1.0);
  }
}

double Perceptron::output(std::span<const double> inputs) const {
  double sum = parameters_.back();
  for (std::size_t unit = 0; unit < hidden_; ++unit) {
    sum += parameters_[output_weights() + unit] * squash(activation(unit, inputs));
  }
  return sum;
}

void Perceptron::add_gradient(std::span<const double> inputs, double scale, std::span<double> gradient) const {
  for (std::size_t unit = 0; unit < hidden_; ++unit) {
    const double z = activation(unit, inputs);
    gradient[output_weights() + unit] += scale * squash(z);
    const double back = scale * parameters_[output_weights() + unit] * squash_slope(z);
    const std::span<double> own = gradient.subspan(unit * (inputs_ + 1), inputs_ + 1);
    own[0] += back;
    for (std::size_t i = 0; i < inputs_; ++i) {
      own[i + 1] += back * inputs[i];
    }
  }
  gradient.back() += scale;
}

double Perceptron::activation(std::size_t unit, std::span<const double> inputs) const {
  const double* const own = &parameters_[unit * (inputs_ + 1)];
  double z = own[0];
  for (std::size_t i = 0; i < inputs_; ++i) {
    z += own[i + 1] * inputs[i];
  }
  return z;
}

void Perceptron::exchange(StateExchange& state) {
  state.fixed_list("parameters", parameters_);
}

}  // namespace isochron
