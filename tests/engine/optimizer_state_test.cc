// Training that stops, saves, restores into new objects and goes on must give the bits of training that never stopped.
#include "isochron/engine/optimizer_state.h"

#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "tests/own_path.h"
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/types.h>

#include "isochron/core/error.h"
#include "isochron/engine/checkpoint.h"

namespace isochron {
namespace {

using torch::optim::Optimizer;
using Parameters = std::vector<at::Tensor>;
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(const Parameters&)>;

template <class Class, class Options>
MakeOptimizer maker(const Options& options) {
  return [options](const Parameters& parameters) { return std::make_unique<Class>(parameters, options); };
}

Parameters make_parameters() {
  torch::manual_seed(1);
  return {
      torch::randn({3, 2}).requires_grad_(), torch::randn({4}).requires_grad_(), torch::randn({2}).requires_grad_()};
}

// The last parameter never gets a gradient, so no state.
void train(const Parameters& parameters, Optimizer& optimizer, int first_step, int last_step) {
  for (int step = first_step; step < last_step; ++step) {
    for (std::size_t i = 0; i < 2; ++i) {
      parameters[i].mutable_grad() = (parameters[i].detach() * 0.3 + step).sin();
    }
    optimizer.step();
  }
}

void expect_same_bits(const Parameters& one, const Parameters& other) {
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(std::memcmp(one[i].data_ptr(), other[i].data_ptr(), one[i].nbytes()), 0);
  }
}

void expect_resumes_identically(const MakeOptimizer& make) {
  const Parameters uninterrupted = make_parameters();
  const auto steady = make(uninterrupted);
  train(uninterrupted, *steady, 0, 7);

  const Parameters before = make_parameters();
  const auto stopped = make(before);
  train(before, *stopped, 0, 4);
  write_checkpoint(own_path(".ckpt"), {.tensors = optimizer_state(*stopped)});

  Parameters after;
  for (const at::Tensor& parameter : before) {
    after.push_back(parameter.detach().clone().requires_grad_());
  }
  const auto resumed = make(after);
  restore_optimizer_state(*resumed, read_checkpoint(own_path(".ckpt")).tensors);
  std::filesystem::remove(own_path(".ckpt"));
  EXPECT_EQ(resumed->state().size(), stopped->state().size());
  train(after, *resumed, 4, 7);
  expect_same_bits(after, uninterrupted);
}

TEST(OptimizerStateTest, ResumedSgdIsIdentical) {
  expect_resumes_identically(maker<torch::optim::SGD>(torch::optim::SGDOptions(0.1)));
  expect_resumes_identically(
      maker<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01)));
}

TEST(OptimizerStateTest, ResumedAdamIsIdentical) {
  expect_resumes_identically(maker<torch::optim::Adam>(torch::optim::AdamOptions(0.1)));
  expect_resumes_identically(maker<torch::optim::Adam>(torch::optim::AdamOptions(0.1).amsgrad(true)));
}

TEST(OptimizerStateTest, ResumedAdamWIsIdentical) {
  expect_resumes_identically(maker<torch::optim::AdamW>(torch::optim::AdamWOptions(0.1)));
}

TEST(OptimizerStateTest, RefusesTheStateOfAnother) {
  const Parameters parameters = make_parameters();
  torch::optim::Adam adam(parameters, torch::optim::AdamOptions(0.1));
  train(parameters, adam, 0, 2);
  const auto state = optimizer_state(adam);

  torch::optim::SGD sgd(parameters, torch::optim::SGDOptions(0.1));
  EXPECT_THROW(restore_optimizer_state(sgd, state), Error);
  torch::optim::AdamW adamw(parameters, torch::optim::AdamWOptions(0.1));
  EXPECT_THROW(restore_optimizer_state(adamw, state), Error);
  torch::optim::Adam fewer({parameters[0]}, torch::optim::AdamOptions(0.1));
  EXPECT_THROW(restore_optimizer_state(fewer, state), Error);
  torch::optim::Adam others({torch::ones({2, 3}).requires_grad_(), parameters[1]}, torch::optim::AdamOptions(0.1));
  EXPECT_THROW(restore_optimizer_state(others, state), Error);
  EXPECT_TRUE(others.state().empty());
}

TEST(OptimizerStateTest, KnowsWhichOptimizersItKnows) {
  const torch::optim::Adagrad adagrad(make_parameters(), torch::optim::AdagradOptions(0.1));
  EXPECT_THROW((void)optimizer_state(adagrad), std::invalid_argument);
}

}  // namespace
}  // namespace isochron
