#include "isochron/engine/model_state.h"

#include <string>

#include "tests/failure.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "isochron/core/error.h"

namespace isochron {
namespace {

using ::testing::HasSubstr;

struct Trained {
  torch::nn::Linear model{3, 2};
  torch::optim::SGD optimizer{model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)};

  void step() {
    optimizer.zero_grad();
    model->forward(at::ones({1, 3})).sum().backward();
    optimizer.step();
  }
};

TEST(ModelStateTest, ModelOptimizerAndTheRestComeBack) {
  Trained before;
  before.step();
  State rest;
  rest.words["policy"] = "uniform";
  const Checkpoint checkpoint = pack_job(rest, *before.model, before.optimizer);
  Trained after;
  EXPECT_EQ(unpack_job(checkpoint, "it", *after.model, after.optimizer), rest);
  EXPECT_TRUE(at::equal(after.model->weight, before.model->weight));
  before.step();
  after.step();  // with the same momentum
  EXPECT_TRUE(at::equal(after.model->weight, before.model->weight));
}

TEST(ModelStateTest, ACheckpointOfAnEarlierVersionIsRefusedAndNothingIsChanged) {
  Trained trained;
  const at::Tensor weight = trained.model->weight.detach().clone();
  Checkpoint checkpoint = pack_job({}, *trained.model, trained.optimizer);
  checkpoint.tensors.at("model.weight") = at::zeros({2, 3});
  checkpoint.texts = {{"job", ""}, {"ledger", ""}, {"controller", ""}, {"ceilings", ""}};
  const auto refusal = [&] {
    return failure([&] { (void)unpack_job(checkpoint, "run/step-9.ckpt", *trained.model, trained.optimizer); });
  };
  EXPECT_THAT(refusal(), HasSubstr("run/step-9.ckpt: a checkpoint of an earlier version"));
  checkpoint.texts = {{"notes", ""}};
  EXPECT_THAT(refusal(), HasSubstr("without 'replica', so not one of a job"));
  EXPECT_TRUE(at::equal(trained.model->weight, weight));
}

TEST(ModelStateTest, SeveralModelsAndOptimizersComeBackAndAnotherNumberIsRefused) {
  Trained first;
  Trained second;
  first.step();
  second.step();
  second.step();
  const Checkpoint of_two = pack_job({}, {*first.model, *second.model}, {first.optimizer, second.optimizer});
  Trained third;
  Trained fourth;
  (void)unpack_job(of_two, "it", {*third.model, *fourth.model}, {third.optimizer, fourth.optimizer});
  for (Trained* const one : {&first, &second, &third, &fourth}) {
    one->step();  // with the same momentum
  }
  EXPECT_TRUE(at::equal(third.model->weight, first.model->weight));
  EXPECT_TRUE(at::equal(fourth.model->weight, second.model->weight));
  EXPECT_THAT(
      failure([&] { (void)unpack_job(of_two, "step-3.ckpt", *third.model, third.optimizer); }),
      HasSubstr("step-3.ckpt: the number of models in the checkpoint is 2; permitted: 1"));
  // One that was written before there were several.
  const Checkpoint of_one = pack_job({}, *first.model, first.optimizer);
  EXPECT_THAT(
      failure([&] {
        (void)unpack_job(of_one, "step-3.ckpt", {*third.model, *fourth.model}, {third.optimizer, fourth.optimizer});
      }),
      HasSubstr("step-3.ckpt: the number of models in the checkpoint is 1; permitted: 2"));
  EXPECT_THAT(
      failure([&] { (void)unpack_job(of_one, "it", *third.model, {third.optimizer, fourth.optimizer}); }),
      HasSubstr("the number of optimizers in the checkpoint is 1; permitted: 2"));
}

}  // namespace
}  // namespace isochron
