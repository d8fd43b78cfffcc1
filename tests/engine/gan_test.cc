// Two ranks train a GAN: two networks, a rate for each, two losses of three forward passes. What they must equal is
// computed by one process with plain LibTorch.
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/engine/shares.h"
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "isochron/data/sample_stream.h"
#include "isochron/data/synthetic_images.h"
#include "isochron/engine/job.h"

namespace isochron {
namespace {

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

// Of both networks: the critic's loss has no gradient for the generator, and the other way round.
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

void train_gan_alone(Gan& gan) {
  const auto dataset = pictures();
  auto optimizer = two_rates(gan);
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
    optimizer.zero_grad();
    losses_of(gan, x).backward();
    optimizer.step();
  }
}

// Rank 1 needs 4 ms a sample.
Batch slowed_batch(Batch batch) {
  if (testing::world_rank() == 1) {
    std::this_thread::sleep_for(batch.data.size(0) * std::chrono::milliseconds(4));
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
  // 4 ms a sample against a few ms for all of them: the least share, or little more.
  EXPECT_GT(trained.split[0], 3 * trained.split[1]);
}

TEST(GanTest, ACriticThatIsNotFrozenForTheGeneratorsLossDoesNot) {
  EXPECT_GT(train_gan_together(/*frozen=*/false).error, 1e-3);
}

}  // namespace
}  // namespace isochron
