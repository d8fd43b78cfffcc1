// Two ranks train a GAN and other loops with several networks, optimizers and backward passes a step. What they must
// equal is computed by one process with plain LibTorch.
#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/shares.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include "isochron/core/error.h"
#include "isochron/data/sample_stream.h"
#include "isochron/data/synthetic_images.h"
#include "isochron/engine/job.h"

namespace isochron {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kGanBatch = 64;
constexpr std::int64_t kGanPixels = 64;
constexpr std::int64_t kGanNoise = 16;
constexpr std::uint64_t kGanSeed = 5;
constexpr std::int64_t kGanSteps = 10;

struct Gan : torch::nn::Module {
  Gan() {
    torch::manual_seed(3);
    generator = register_module(
        "generator",
        torch::nn::Sequential(torch::nn::Linear(kGanNoise, 32), torch::nn::Tanh(), torch::nn::Linear(32, kGanPixels)));
    critic = register_module(
        "critic",
        torch::nn::Sequential(torch::nn::Linear(kGanPixels, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1)));
    to(torch::kDouble);
  }

  void train_critic(bool on) {
    for (at::Tensor& parameter : critic->parameters()) {
      parameter.requires_grad_(on);
    }
  }

  torch::nn::Sequential generator{nullptr};
  torch::nn::Sequential critic{nullptr};
};

at::Tensor against(const at::Tensor& answers, double truth) {
  return torch::nn::functional::binary_cross_entropy_with_logits(answers, at::full_like(answers, truth));
}

// The losses of both networks are added up: the critic's has no gradient for the generator, and the other way round.
at::Tensor losses_of(Gan& gan, const at::Tensor& x, bool frozen = true) {
  const at::Tensor real = x.flatten(1).to(at::kDouble);
  const at::Tensor fake = gan.generator->forward(real.narrow(1, 0, kGanNoise));  // of the sample, not of the worker
  const at::Tensor of_critic =
      against(gan.critic->forward(real), 1.0) + against(gan.critic->forward(fake.detach()), 0.0);
  gan.train_critic(!frozen);
  const at::Tensor of_generator = against(gan.critic->forward(fake), 1.0);
  gan.train_critic(true);
  return of_critic + of_generator;
}

torch::optim::SGD two_rates(Gan& gan) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(
      gan.generator->parameters(),
      std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(0.2).momentum(0.5)));
  groups.emplace_back(
      gan.critic->parameters(),
      std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(0.05).momentum(0.9)));
  return torch::optim::SGD(groups, torch::optim::SGDOptions(0.1));
}

std::shared_ptr<data::Dataset> pictures() {
  return data::synthetic_images(
      {.samples = kGanSteps * kGanBatch, .classes = 4, .channels = 1, .height = 8, .width = 8, .seed = 1});
}

// The global batches in their order, as one process has them.
void for_each_batch(const std::function<void(const at::Tensor& x)>& step_with) {
  const auto dataset = pictures();
  const SamplerOptions order{.dataset_size = dataset->size(), .global_batch = kGanBatch, .seed = kGanSeed};
  const data::SampleStream stream(dataset, order, data::Augment(dataset->shape(), {.seed = kGanSeed}));
  Sampler sampler(order);
  for (std::int64_t step = 0; step < kGanSteps; ++step, sampler.advance()) {
    const Interval all = stream.running(sampler.state(), sampler.slices(std::vector<std::int64_t>{kGanBatch})[0]);
    const at::Tensor x = at::empty({all.size(), 1, 8, 8});
    for (std::int64_t i = 0; i < all.size(); ++i) {
      const at::Tensor sample = x[i];
      stream.fetch(all.first + i, {static_cast<std::byte*>(sample.mutable_data_ptr()), sample.nbytes()});
    }
    step_with(x);
  }
}

void train_gan_alone(Gan& gan) {
  auto optimizer = two_rates(gan);
  for_each_batch([&](const at::Tensor& x) {
    optimizer.zero_grad();
    losses_of(gan, x).backward();
    optimizer.step();
  });
}

// Rank 1 needs 20 ms a sample, far more than other work on the machine adds.
Batch slowed_batch(Batch batch) {
  if (testing::world_rank() == 1) {
    std::this_thread::sleep_for(batch.data.size(0) * std::chrono::milliseconds(20));
  }
  return batch;
}

struct TrainedGan {
  double error = 0.0;
  std::vector<std::int64_t> split;
  bool complete = false;
};

TrainedGan train_gan_together(bool frozen) {
  Gan single;
  train_gan_alone(single);
  Gan gan;
  auto optimizer = two_rates(gan);
  Job job({.global_batch = kGanBatch, .seed = kGanSeed});
  job.prepare(gan, optimizer);
  for (const Batch& batch : job.loader(pictures())) {
    job.backward(losses_of(gan, slowed_batch(batch).data, frozen));
    optimizer.step();
    optimizer.zero_grad();
  }
  testing::expect_same_bits_everywhere(gan.parameters());
  return {
      .error = testing::relative_error(gan.parameters(), single.parameters()),
      .split = job.batch_sizes(),
      .complete = job.ledger().complete()};
}

TEST(GanTest, TwoNetworksWithARateForEachTrainLikeOneProcess) {
  const TrainedGan trained = train_gan_together(/*frozen=*/true);
  EXPECT_LT(trained.error, 1e-10);
  EXPECT_TRUE(trained.complete);
  // 20 ms a sample against a few ms for all of them: the least share, or little more.
  EXPECT_GT(trained.split[0], 3 * trained.split[1]);
}

TEST(GanTest, ACriticThatIsNotFrozenForTheGeneratorsLossDoesNot) {
  EXPECT_GT(train_gan_together(/*frozen=*/false).error, 1e-3);
}

// Two networks that take their steps in turn, an optimizer for each: the generator is judged by the critic's new
// parameters. BatchNorm in the generator is exchanged in both passes.
struct Turns {
  Turns() {
    torch::manual_seed(3);
    generator = torch::nn::Sequential(
        torch::nn::Linear(kGanNoise, 32),
        torch::nn::BatchNorm1d(32),
        torch::nn::Tanh(),
        torch::nn::Linear(32, kGanPixels));
    critic = torch::nn::Sequential(torch::nn::Linear(kGanPixels, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
    generator->to(torch::kDouble);
    critic->to(torch::kDouble);
    of_critic = std::make_unique<torch::optim::Adam>(critic->parameters(), torch::optim::AdamOptions(0.01));
    of_generator =
        std::make_unique<torch::optim::SGD>(generator->parameters(), torch::optim::SGDOptions(0.2).momentum(0.5));
  }

  at::Tensor make(const at::Tensor& x) {
    return generator->forward(x.flatten(1).to(at::kDouble).narrow(1, 0, kGanNoise));
  }
  at::Tensor critics_loss(const at::Tensor& x, const at::Tensor& fake) {
    return against(critic->forward(x.flatten(1).to(at::kDouble)), 1.0) + against(critic->forward(fake.detach()), 0.0);
  }
  at::Tensor generators_loss(const at::Tensor& fake) { return against(critic->forward(fake), 1.0); }

  // Returns the sum of the losses.
  double step_alone(const at::Tensor& x) {
    const at::Tensor fake = make(x);
    of_critic->zero_grad();
    const at::Tensor first = critics_loss(x, fake);
    first.backward();
    of_critic->step();
    of_generator->zero_grad();
    const at::Tensor second = generators_loss(fake);
    second.backward();
    of_generator->step();
    return (first + second).item<double>();
  }

  void prepare(Job& job) { job.prepare({*critic, *generator}, {*of_critic, *of_generator}); }

  void step_with(Job& job, const Batch& batch, const std::function<void()>& between = {}) {
    const at::Tensor fake = make(batch.data);
    of_critic->zero_grad();
    job.backward(critics_loss(slowed_batch(batch).data, fake), *of_critic);
    of_critic->step();
    if (between) {
      between();
    }
    of_generator->zero_grad();
    job.backward(generators_loss(fake), *of_generator);
    of_generator->step();
  }

  testing::Tensors tensors() const {
    testing::Tensors all = generator->parameters();
    for (const at::Tensor& more : critic->parameters()) {
      all.push_back(more);
    }
    for (const at::Tensor& buffer : generator->buffers()) {
      all.push_back(buffer);
    }
    return all;
  }

  torch::nn::Sequential generator{nullptr};
  torch::nn::Sequential critic{nullptr};
  std::unique_ptr<torch::optim::Adam> of_critic;
  std::unique_ptr<torch::optim::SGD> of_generator;
};

JobOptions gan_options() {
  JobOptions options{{.global_batch = kGanBatch, .seed = kGanSeed}};
  options.min_batch = 2;  // BatchNorm1d refuses one sample
  return options;
}

TEST(GanTest, TwoOptimizersThatTakeTurnsTrainLikeOneProcessAndWaitingIsTakenOutOfEveryPass) {
  Turns single;
  std::vector<double> expected;
  for_each_batch([&](const at::Tensor& x) { expected.push_back(single.step_alone(x)); });
  Turns gan;
  std::vector<double> losses;
  JobOptions options = gan_options();
  options.on_step = [&](const StepRecord& step) { losses.push_back(step.loss); };
  Job job(options);
  gan.prepare(job);
  for (const Batch& batch : job.loader(pictures())) {
    gan.step_with(job, batch);
  }
  EXPECT_LT(testing::relative_error(gan.tensors(), single.tensors()), 1e-10);
  testing::expect_same_bits_everywhere(gan.tensors());
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t step = 0; step < losses.size(); ++step) {
    EXPECT_NEAR(losses[step], expected[step], 1e-10) << "step " << step;
  }
  EXPECT_TRUE(job.ledger().complete());
  // Rank 1 is slow before the first pass, and rank 0 waits for it in that pass's exchange.
  EXPECT_GT(job.batch_sizes()[0], 3 * job.batch_sizes()[1]);
}

TEST(GanTest, AFailureAfterTheFirstOptimizersStepTakesThatBack) {
  Turns single;
  for_each_batch([&](const at::Tensor& x) { single.step_alone(x); });
  Turns gan;
  Job job(gan_options());
  gan.prepare(job);
  std::int64_t failures = 0;
  for (const Batch& batch : job.loader(pictures())) {
    gan.step_with(job, batch, [&] {
      if (job.step() == 4 && failures == 0 && testing::world_rank() == 0) {
        ++failures;
        job.give_up_step(std::make_exception_ptr(std::bad_alloc()));
      }
    });
  }
  EXPECT_EQ(failures, testing::world_rank() == 0 ? 1 : 0);
  EXPECT_EQ(job.step(), kGanSteps);
  EXPECT_LT(testing::relative_error(gan.tensors(), single.tensors()), 1e-10);
  testing::expect_same_bits_everywhere(gan.tensors());
  EXPECT_TRUE(job.ledger().complete());
}

TEST(GanTest, AStepWhoseSecondGradientIsNotFiniteIsLeftOutAsAWhole) {
  Turns single;
  std::int64_t number = 0;
  for_each_batch([&](const at::Tensor& x) {
    if (number++ != 4) {
      single.step_alone(x);
    }
  });
  Turns gan;
  JobOptions options = gan_options();
  options.on_nonfinite = OnNonFinite::kSkip;
  Job job(options);
  gan.prepare(job);
  for (const Batch& batch : job.loader(pictures())) {
    const at::Tensor fake = gan.make(batch.data);
    gan.of_critic->zero_grad();
    job.backward(gan.critics_loss(batch.data, fake), *gan.of_critic);
    gan.of_critic->step();
    gan.of_generator->zero_grad();
    at::Tensor loss = gan.generators_loss(fake);
    if (job.step() == 4 && testing::world_rank() == 1) {
      loss = loss * std::numeric_limits<double>::quiet_NaN();
    }
    job.backward(loss, *gan.of_generator);
    gan.of_generator->step();
  }
  EXPECT_LT(testing::relative_error(gan.tensors(), single.tensors()), 1e-10);
  testing::expect_same_bits_everywhere(gan.tensors());
}

TEST(GanTest, ARestoredJobHasTheStateOfAllOptimizers) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("gan-" + std::to_string(getppid()) + ".ckpt");
  Turns single;
  for_each_batch([&](const at::Tensor& x) { single.step_alone(x); });
  {
    Turns gan;
    Job job(gan_options());
    gan.prepare(job);
    for (const Batch& batch : job.loader(pictures())) {
      gan.step_with(job, batch);
      if (job.step() == 5) {
        job.save(path);
        break;
      }
    }
  }
  Turns gan;
  Job job(gan_options());
  gan.prepare(job);
  job.restore(path);
  for (const Batch& batch : job.loader(pictures())) {
    gan.step_with(job, batch);
  }
  EXPECT_LT(testing::relative_error(gan.tensors(), single.tensors()), 1e-10);
  EXPECT_TRUE(job.ledger().complete());
  Turns other;
  Job of_one({.global_batch = kGanBatch, .seed = kGanSeed});
  of_one.prepare(*other.critic, *other.of_critic);
  EXPECT_THAT(
      [&] { of_one.restore(path); },
      ThrowsMessage<Error>(HasSubstr("the number of models in the checkpoint is 2; permitted: 1")));
  job.barrier();
  std::filesystem::remove(path);
}

// Policy, value and what both see, an optimizer for each.
struct ActorCritic : torch::nn::Module {
  ActorCritic() {
    torch::manual_seed(9);
    trunk = register_module("trunk", torch::nn::Linear(kGanPixels, 16));
    actor = register_module("actor", torch::nn::Linear(16, 3));
    critic = register_module("critic", torch::nn::Linear(16, 1));
    to(torch::kDouble);
  }
  at::Tensor features(const at::Tensor& x) { return trunk->forward(x.flatten(1).to(at::kDouble)).tanh(); }
  at::Tensor value_loss(const at::Tensor& features) { return (critic->forward(features) - 0.5).square().mean(); }
  at::Tensor policy_loss(const at::Tensor& features) {
    const at::Tensor advantage = 1.0 - critic->forward(features).detach();
    return -(actor->forward(features).log_softmax(1).select(1, 0) * advantage.select(1, 0)).mean();
  }

  torch::nn::Linear trunk{nullptr};
  torch::nn::Linear actor{nullptr};
  torch::nn::Linear critic{nullptr};
};

struct ActorCriticOptimizers {
  explicit ActorCriticOptimizers(ActorCritic& agent)
      : trunk(agent.trunk->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)),
        actor(agent.actor->parameters(), torch::optim::AdamOptions(0.01)),
        critic(agent.critic->parameters(), torch::optim::AdamWOptions(0.02)) {}

  torch::optim::SGD trunk;
  torch::optim::Adam actor;
  torch::optim::AdamW critic;
};

TEST(PassesTest, ActorAndCriticWithAnOptimizerEachAndASharedTrunkTrainLikeOneProcess) {
  ActorCritic single;
  ActorCriticOptimizers alone(single);
  for_each_batch([&](const at::Tensor& x) {
    const at::Tensor features = single.features(x);
    alone.critic.zero_grad();
    alone.trunk.zero_grad();
    single.value_loss(features).backward({}, /*retain_graph=*/true);  // leaves its gradient in the trunk
    const at::Tensor policy_loss = single.policy_loss(features);
    alone.actor.zero_grad();
    policy_loss.backward();
    alone.critic.step();
    alone.actor.step();
    alone.trunk.step();
  });
  ActorCritic agent;
  ActorCriticOptimizers together(agent);
  Job job({.global_batch = kGanBatch, .seed = kGanSeed});
  job.prepare(agent, {together.trunk, together.actor, together.critic});
  for (const Batch& batch : job.loader(pictures())) {
    const at::Tensor features = agent.features(slowed_batch(batch).data);
    together.critic.zero_grad();
    together.trunk.zero_grad();
    job.backward(agent.value_loss(features), {together.critic, together.trunk}, /*retain_graph=*/true);
    const at::Tensor policy_loss = agent.policy_loss(features);
    together.actor.zero_grad();
    job.backward(policy_loss, {together.trunk, together.actor});
    together.critic.step();
    together.actor.step();
    together.trunk.step();
  }
  EXPECT_LT(testing::relative_error(agent.parameters(), single.parameters()), 1e-10);
  EXPECT_GT(job.batch_sizes()[0], 3 * job.batch_sizes()[1]);
}

TEST(PassesTest, SeveralLossesOfOneOptimizerAddUpInChunksToo) {
  for (const std::int64_t chunk : {0, 5}) {
    Gan single;
    auto alone = two_rates(single);
    for_each_batch([&](const at::Tensor& x) {
      alone.zero_grad();
      losses_of(single, x).backward();
      (0.1 * single.generator->forward(x.flatten(1).to(at::kDouble).narrow(1, 0, kGanNoise)).square().mean())
          .backward();
      alone.step();
    });
    Gan gan;
    auto optimizer = two_rates(gan);
    JobOptions options{{.global_batch = kGanBatch, .policy = "static:weights=3/1", .seed = kGanSeed}};
    options.micro_batch = chunk;
    options.gradients.find_unused_parameters = true;  // the second loss does not reach the critic
    Job job(options);
    job.prepare(gan, optimizer);
    for (const Batch& batch : job.loader(pictures())) {
      optimizer.zero_grad();
      job.backward(batch, [&](const at::Tensor& x, const at::Tensor& /*y*/) { return losses_of(gan, x); }, optimizer);
      job.backward(
          batch,
          [&](const at::Tensor& x, const at::Tensor& /*y*/) {
            return 0.1 * gan.generator->forward(x.flatten(1).to(at::kDouble).narrow(1, 0, kGanNoise)).square().mean();
          },
          optimizer);
      optimizer.step();
    }
    EXPECT_LT(testing::relative_error(gan.parameters(), single.parameters()), 1e-10) << "chunks of " << chunk;
  }
}

TEST(PassesTest, WhatCannotBeIsRefused) {
  Turns gan;
  Turns other;
  {
    Job job(gan_options());
    EXPECT_THAT(
        [&] { job.prepare({*gan.critic}, {*gan.of_critic, *gan.of_generator}); },
        ThrowsMessage<std::invalid_argument>(HasSubstr("optimizer 1 has a parameter of shape")));
    EXPECT_THAT(
        [&] { job.prepare({*gan.critic, *gan.critic}, *gan.of_critic); },
        ThrowsMessage<std::invalid_argument>(HasSubstr("2 models, of which 1 differ; permitted: one or more")));
    gan.prepare(job);
    for (const Batch& batch : job.loader(pictures())) {
      const at::Tensor fake = gan.make(batch.data);
      EXPECT_THAT(
          [&] { job.backward(gan.generators_loss(fake), *other.of_critic); },
          ThrowsMessage<std::invalid_argument>(HasSubstr("permitted: those that were given to prepare()")));
      job.backward(gan.generators_loss(fake));  // for both, and the last one
      EXPECT_THAT(
          [&] { job.backward(gan.generators_loss(gan.make(batch.data)), *gan.of_critic); },
          ThrowsMessage<std::logic_error>(HasSubstr("as in backward(loss, optimizer)")));
      break;
    }
    job.close();
  }
  JobOptions adascale = gan_options();
  adascale.rate.rule = RateRule::kAdaScale;
  Turns scaled;
  Job job(adascale);
  scaled.prepare(job);
  for (const Batch& batch : job.loader(pictures())) {
    const at::Tensor loss = scaled.generators_loss(scaled.make(batch.data));
    EXPECT_THAT(
        [&] { job.backward(loss, *scaled.of_generator); },
        ThrowsMessage<std::invalid_argument>(HasSubstr("lr_rule is adascale")));
    job.backward(loss);
    break;
  }
  job.close();
}

TEST(PassesTest, AnAsynchronousJobTakesOneModelAndOneOptimizer) {
  Turns gan;
  JobOptions options = gan_options();
  options.sync = Sync::kAsp;
  Job job(options);
  EXPECT_THAT(
      [&] { gan.prepare(job); },
      ThrowsMessage<std::invalid_argument>(HasSubstr("2 models and 2 optimizers of an asynchronous job")));
}

}  // namespace
}  // namespace isochron
