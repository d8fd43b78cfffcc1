// Four ranks run whole jobs; what they must equal is computed by one process with plain LibTorch.
#include "isochron/engine/job.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/ranks/group.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "isochron/core/error.h"
#include "isochron/data/sample_stream.h"
#include "isochron/data/synthetic_images.h"
#include "isochron/engine/exchange.h"

namespace isochron {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using testing::world_rank;

constexpr std::int64_t kGlobalBatch = 64;
constexpr std::uint64_t kSeed = 5;
const char* const kUneven = "static:weights=5/9/17/33";

std::shared_ptr<data::Dataset> images(std::int64_t size) {
  return data::synthetic_images({.samples = size, .classes = 4, .channels = 1, .height = 8, .width = 8, .seed = 1});
}

// Two convolutions with BatchNorm, a linear layer.
torch::nn::Sequential make_model(std::uint64_t seed) {
  torch::manual_seed(seed);
  return torch::nn::Sequential(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 6, 3).bias(false)),
      torch::nn::BatchNorm2d(6),
      torch::nn::ReLU(),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(6, 4, 3).bias(false)),
      torch::nn::BatchNorm2d(4),
      torch::nn::ReLU(),
      torch::nn::Flatten(),
      torch::nn::Linear(64, 4));
}

torch::nn::Sequential make_model_without_statistics(std::uint64_t seed) {
  torch::manual_seed(seed);
  return torch::nn::Sequential(
      torch::nn::Flatten(), torch::nn::Linear(64, 32), torch::nn::Tanh(), torch::nn::Linear(32, 4));
}

torch::Tensor loss_of(torch::nn::Sequential& model, const at::Tensor& x, const at::Tensor& y) {
  return torch::nn::functional::cross_entropy(model->forward(x), y);
}

torch::optim::SGD make_optimizer(torch::nn::Sequential& model) {
  return torch::optim::SGD(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
}

// What training on whole batches of B in the job's order gives: the losses of the steps.
std::vector<double> train_alone(
    torch::nn::Sequential& model,
    const std::shared_ptr<data::Dataset>& dataset,
    std::int64_t steps,
    const std::function<at::Tensor(torch::nn::Sequential&, const at::Tensor&, const at::Tensor&)>& loss_of_step =
        loss_of) {
  auto optimizer = make_optimizer(model);
  const SamplerOptions order{.dataset_size = dataset->size(), .global_batch = kGlobalBatch, .seed = kSeed};
  const data::SampleStream stream(dataset, order, data::Augment(dataset->shape(), {.seed = kSeed}));
  Sampler sampler(order);
  std::vector<double> losses;
  for (std::int64_t step = 0; step < steps; ++step, sampler.advance()) {
    const Interval all = stream.running(sampler.state(), sampler.slices(std::vector<std::int64_t>{kGlobalBatch})[0]);
    at::Tensor x = at::empty({all.size(), 1, 8, 8});
    at::Tensor y = at::empty({all.size()}, at::kLong);
    for (std::int64_t i = 0; i < all.size(); ++i) {
      const at::Tensor sample = x[i];
      y[i] = stream.fetch(all.first + i, {static_cast<std::byte*>(sample.mutable_data_ptr()), sample.nbytes()});
    }
    const at::Tensor loss = loss_of_step(model, x, y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

// The losses of the job's steps.
std::vector<double> train(
    Job& job,
    torch::nn::Sequential& model,
    torch::optim::Optimizer& optimizer,
    const std::shared_ptr<data::Dataset>& dataset,
    std::int64_t epochs) {
  std::vector<double> losses;
  for ([[maybe_unused]] const auto epoch : job.epochs(epochs)) {
    for (const auto& batch : job.loader(dataset)) {
      if (job.step() > 0) {
        losses.push_back(job.last_step().loss);
      }
      job.backward(batch, [&](const at::Tensor& x, const at::Tensor& y) { return loss_of(model, x, y); });
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  losses.push_back(job.last_step().loss);
  return losses;
}

double distance(const torch::nn::Sequential& a, const torch::nn::Sequential& b) {
  double worst = 0.0;
  for (std::size_t i = 0; i < a->parameters().size(); ++i) {
    const at::Tensor x = a->parameters()[i].detach();
    const at::Tensor y = b->parameters()[i].detach();
    worst = std::max(worst, ((x - y).abs().max() / y.abs().max()).item<double>());
  }
  return worst;
}

// A digest of the bytes of parameters and buffers.
std::string fingerprint(const torch::nn::Sequential& model) {
  std::string bytes;
  const auto append = [&](const at::Tensor& tensor) {
    bytes.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  };
  std::ranges::for_each(model->parameters(), append);
  std::ranges::for_each(model->buffers(), append);
  return bytes;
}

bool identical_on_all_ranks(Job& job, const torch::nn::Sequential& model) {
  const auto hash = static_cast<double>(std::hash<std::string>{}(fingerprint(model)) >> 11U);
  std::vector<double> hashes(static_cast<std::size_t>(job.size()));
  hashes[static_cast<std::size_t>(job.rank())] = hash;
  hashes = job.sum(hashes);
  return std::ranges::all_of(hashes, [&](double other) { return other == hash; });
}

TEST(JobTest, UnevenSharesWithBatchNormTrainLikeOneProcess) {
  const auto dataset = images(1000);  // 15 steps of 64 and one of 40
  auto single = make_model(3);
  const auto expected = train_alone(single, dataset, 32);

  auto model = make_model(100 + static_cast<std::uint64_t>(world_rank()));  // rank 0's parameters are everybody's
  auto start = make_model(3);
  if (world_rank() == 0) {
    model = start;
  }
  auto optimizer = make_optimizer(model);
  Job job({.global_batch = kGlobalBatch, .policy = kUneven, .seed = kSeed});
  job.prepare(*model, optimizer);
  const auto losses = train(job, model, optimizer, dataset, 2);

  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t step = 0; step < losses.size(); ++step) {
    EXPECT_NEAR(losses[step], expected[step], 1e-4 * expected[step]) << "step " << step;
  }
  EXPECT_LT(distance(model, single), 1e-3);
  EXPECT_TRUE(identical_on_all_ranks(job, model));
}

TEST(JobTest, WithoutWeightsItDoesNot) {
  const auto dataset = images(640);
  auto single = make_model(3);
  train_alone(single, dataset, 10);
  auto model = make_model(3);
  auto optimizer = make_optimizer(model);
  Job job({.global_batch = kGlobalBatch, .policy = kUneven, .weighting = Weighting::kMean, .seed = kSeed});
  job.prepare(*model, optimizer);
  train(job, model, optimizer, dataset, 1);
  EXPECT_GT(distance(model, single), 1e-2);
}

TEST(JobTest, ParametersStayBitIdenticalWhileTheSplitChanges) {
  auto model = make_model(3);
  auto optimizer = make_optimizer(model);
  std::int64_t changes = 0;
  JobOptions options{{.global_batch = kGlobalBatch, .policy = "isochron", .seed = kSeed}};
  options.on_step = [&](const StepRecord& record) { changes += record.changed ? 1 : 0; };
  Job job(options);
  job.prepare(*model, optimizer);
  train(job, model, optimizer, images(640), 10);
  EXPECT_EQ(job.step(), 100);
  EXPECT_TRUE(identical_on_all_ranks(job, model));
  EXPECT_GT(changes, 0);
}

TEST(JobTest, EverySampleIsUsedOnceAndAWorkerWithoutAShareCountsForNothing) {
  // The last step has 66 - 64 = 2 samples for four workers.
  const auto dataset = images(66);
  auto single = make_model(3);
  const auto expected = train_alone(single, dataset, 4);
  auto model = make_model(3);
  auto optimizer = make_optimizer(model);
  std::vector<std::vector<std::int64_t>> batches;
  JobOptions options{{.global_batch = kGlobalBatch, .policy = kUneven, .seed = kSeed}};
  options.on_step = [&](const StepRecord& record) {
    batches.emplace_back();
    for (const WorkerStep& worker : record.workers) {
      batches.back().push_back(worker.batch);
    }
  };
  Job job(options);
  job.prepare(*model, optimizer);
  const auto losses = train(job, model, optimizer, dataset, 2);
  EXPECT_THAT(
      batches,
      ::testing::ElementsAre(
          ::testing::ElementsAre(5, 9, 17, 33),
          ::testing::ElementsAre(0, 0, 1, 1),
          ::testing::ElementsAre(5, 9, 17, 33),
          ::testing::ElementsAre(0, 0, 1, 1)));
  EXPECT_TRUE(job.ledger().complete());
  for (std::size_t step = 0; step < losses.size(); ++step) {
    EXPECT_NEAR(losses[step], expected[step], 1e-4 * expected[step]) << "step " << step;
  }
}

TEST(JobTest, MicroBatchesGiveTheSameGradientAsTheWholeBatch) {
  const auto dataset = images(640);
  auto single = make_model_without_statistics(3);
  train_alone(single, dataset, 10);
  auto model = make_model_without_statistics(3);
  auto optimizer = make_optimizer(model);
  // Only one worker computes in pieces: 33 samples as 10, 10, 10, 3.
  Job job({.global_batch = kGlobalBatch, .policy = kUneven, .seed = kSeed, .micro_batch = world_rank() == 3 ? 10 : 0});
  job.prepare(*model, optimizer);
  train(job, model, optimizer, dataset, 1);
  EXPECT_LT(distance(model, single), 1e-5);
}

TEST(JobTest, InBf16ForwardComputesInItAndTheParametersStayAsTheyAre) {
  auto model = make_model_without_statistics(3);
  auto optimizer = make_optimizer(model);
  Job job({.global_batch = kGlobalBatch, .policy = kUneven, .seed = kSeed, .precision = Precision::kBf16});
  job.prepare(*model, optimizer);
  for (const auto& [x, y] : job.loader(images(640))) {
    const at::Tensor scores = model->forward(x);
    EXPECT_EQ(scores.scalar_type(), torch::kBFloat16);
    job.backward(torch::nn::functional::cross_entropy(scores, y));
    EXPECT_EQ(model->forward(x).scalar_type(), torch::kFloat);  // only the forward pass of a step
    optimizer.step();
    optimizer.zero_grad();
  }
  auto single = make_model_without_statistics(3);
  train_alone(single, images(640), 10);
  EXPECT_EQ(model->parameters().front().scalar_type(), torch::kFloat);
  EXPECT_LT(distance(model, single), 0.02);
  EXPECT_TRUE(identical_on_all_ranks(job, model));
}

TEST(JobTest, MicroBatchesAreRefusedForAModelWithBatchNorm) {
  auto model = make_model(3);
  auto optimizer = make_optimizer(model);
  Job job({.global_batch = kGlobalBatch, .micro_batch = world_rank() == 3 ? 10 : 0});
  EXPECT_THROW(job.prepare(*model, optimizer), std::invalid_argument);
}

// 20 ms a sample, asleep: what a busy worker takes from the others where cores are few would blur the difference.
void take_time_on_rank_2(const at::Tensor& x) {
  if (world_rank() == 2) {
    std::this_thread::sleep_for(x.size(0) * std::chrono::milliseconds(20));
  }
}

TEST(JobTest, ASlowWorkerGetsAFewerSamples) {
  auto model = make_model(3);
  auto optimizer = make_optimizer(model);
  const auto dataset = images(640);
  double waited_first = 0.0;  // of all steps, since in the last ones nobody has to wait long
  double waited_slow = 0.0;
  JobOptions options{{.global_batch = kGlobalBatch, .seed = kSeed}};
  options.on_step = [&](const StepRecord& step) {
    waited_first += step.workers[0].wait_seconds;
    waited_slow += step.workers[2].wait_seconds;
  };
  Job job(options);
  job.prepare(*model, optimizer);
  for ([[maybe_unused]] const auto epoch : job.epochs(1)) {
    for (const auto& [x, y] : job.loader(dataset)) {
      // Rank 2 needs 20 ms a sample, far more than the others need for a batch; they wait for it inside BatchNorm,
      // and must not be taken for slow.
      take_time_on_rank_2(x);
      job.backward(loss_of(model, x, y));
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  EXPECT_LT(job.batch_sizes()[2], 8);
  EXPECT_GT(waited_first, waited_slow);
}

// Two losses of two forward passes: the second is how far the answers to darker images are from 0. Rank 2 needs 5 ms a
// sample between them.
torch::Tensor two_losses_of(torch::nn::Sequential& model, const at::Tensor& x, const at::Tensor& y, bool slowed) {
  const at::Tensor first = loss_of(model, x, y);
  if (slowed) {
    take_time_on_rank_2(x);
  }
  return first + 0.1 * model->forward(0.5 * x).square().mean();
}

TEST(JobTest, SeveralLossesTrainLikeOneProcessAndWaitingIsTakenOutOfTheirTimes) {
  // All wait for rank 2 inside the BatchNorm of the second forward pass, and must not be taken for slow.
  const auto dataset = images(640);
  auto single = make_model(3);
  const auto expected = train_alone(single, dataset, 10, [](auto& alone, const at::Tensor& x, const at::Tensor& y) {
    return two_losses_of(alone, x, y, /*slowed=*/false);
  });
  auto model = make_model(3);
  auto optimizer = make_optimizer(model);
  std::vector<double> losses;
  JobOptions options{{.global_batch = kGlobalBatch, .seed = kSeed}};
  options.on_step = [&](const StepRecord& step) { losses.push_back(step.loss); };
  Job job(options);
  job.prepare(*model, optimizer);
  for (const auto& [x, y] : job.loader(dataset)) {
    job.backward(two_losses_of(model, x, y, /*slowed=*/true));
    optimizer.step();
    optimizer.zero_grad();
  }
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t step = 0; step < losses.size(); ++step) {
    EXPECT_NEAR(losses[step], expected[step], 1e-4 * expected[step]) << "step " << step;
  }
  EXPECT_LT(distance(model, single), 1e-3);
  EXPECT_LT(job.batch_sizes()[2], 8);
}

TEST(JobTest, ASecondBackwardOfABatchSaysWhatToDo) {
  auto model = make_model_without_statistics(3);
  auto optimizer = make_optimizer(model);
  Job job({.global_batch = kGlobalBatch, .policy = kUneven, .seed = kSeed});
  job.prepare(*model, optimizer);
  const auto once_for_all = HasSubstr("prepare() a second time; permitted: once, with all models and optimizers");
  EXPECT_THAT([&] { job.prepare(*model, optimizer); }, ThrowsMessage<std::logic_error>(once_for_all));
  for (const auto& [x, y] : job.loader(images(128))) {
    EXPECT_TRUE(job.backward(loss_of(model, x, y)));
    const at::Tensor second = loss_of(model, x, y);
    const auto once = HasSubstr("permitted: once, with the sum of its losses");
    EXPECT_THAT([&] { job.backward(second); }, ThrowsMessage<std::logic_error>(once));
    optimizer.step();  // that step is as it was
    optimizer.zero_grad();
  }
  EXPECT_EQ(job.step(), 2);
  EXPECT_TRUE(job.ledger().complete());
}

TEST(JobTest, WorkersThatDisagreeFailInsteadOfHanging) {
  auto model = make_model(3);
  auto optimizer = make_optimizer(model);
  Job job({.global_batch = kGlobalBatch, .policy = kUneven});
  job.prepare(*model, optimizer);
  if (world_rank() == 2) {
    auto workers = job.workers();
    workers[0].min_batch = 8;  // another split on this rank alone
    job.change_workers(workers);
  }
  try {
    train(job, model, optimizer, images(640), 1);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("step 0: rank 2 does not agree with rank 0"));
  }
}

TEST(JobTest, OptionsThatDifferAreRefusedOnAllWorkers) {
  try {
    const Job job({.global_batch = world_rank() == 1 ? 32 : 64});
    FAIL() << "no error";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "global_batch is 32 on rank 1; permitted: what rank 0 has, 64");
  }
}

TEST(JobTest, AStopOnOneWorkerEndsTheLoopsOfAllAtTheSameStep) {
  auto model = make_model(3);
  auto optimizer = make_optimizer(model);
  const auto dataset = images(6400);
  Job job({.global_batch = kGlobalBatch, .handle_signals = true});
  job.prepare(*model, optimizer);
  for ([[maybe_unused]] const auto epoch : job.epochs(3)) {
    for (const auto& [x, y] : job.loader(dataset)) {
      if (world_rank() == 1 && job.step() == 7) {
        std::raise(SIGTERM);
      }
      job.backward(loss_of(model, x, y));
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  EXPECT_EQ(job.step(), 8);
  EXPECT_EQ(job.stop_signal(), SIGTERM);
}

// B is twice the batch that the rate was tuned for. The schedule doubles the rate between the steps, so that the second
// base equals what was in force in the first step.
TEST(JobTest, TheLearningRateFollowsTheBatchAndTheScheduleAlike) {
  auto model = make_model(3);
  auto optimizer = make_optimizer(model);
  auto& rate = optimizer.param_groups().front().options();
  Job job(
      {.global_batch = kGlobalBatch,
       .policy = kUneven,
       .rate = {.rule = RateRule::kLinear, .reference_batch = kGlobalBatch / 2}});
  job.prepare(*model, optimizer);
  std::vector<double> in_force;
  rate.set_lr(0.01);
  for (const auto& [x, y] : job.loader(images(192))) {
    job.backward(loss_of(model, x, y));
    in_force.push_back(rate.get_lr());
    optimizer.step();
    optimizer.zero_grad();
    job.finish_step();
    rate.set_lr(2 * rate.get_lr());
  }
  EXPECT_THAT(in_force, ::testing::ElementsAre(0.02, 0.04, 0.08));
}

TEST(JobTest, ARestoredJobGoesOnBitByBit) {
  const auto dataset = images(1000);
  const auto file = std::filesystem::path(ISOCHRON_TEST_DATA) / "job_test.ckpt";
  const JobOptions options{{.global_batch = kGlobalBatch, .policy = kUneven, .seed = kSeed}};
  auto whole = make_model(3);
  auto whole_optimizer = make_optimizer(whole);
  {
    Job job(options);
    job.prepare(*whole, whole_optimizer);
    for ([[maybe_unused]] const auto epoch : job.epochs(2)) {
      for (const auto& [x, y] : job.loader(dataset)) {
        job.backward(loss_of(whole, x, y));
        whole_optimizer.step();
        whole_optimizer.zero_grad();
        if (job.step() == 20) {  // in the middle of the second epoch
          job.save(file);
        }
      }
    }
  }
  auto resumed = make_model(99);
  auto optimizer = make_optimizer(resumed);
  Job job(options);
  job.prepare(*resumed, optimizer);
  job.restore(file);
  EXPECT_EQ(job.step(), 21);
  train(job, resumed, optimizer, dataset, 2);
  EXPECT_EQ(fingerprint(resumed), fingerprint(whole));
  EXPECT_TRUE(job.ledger().complete());
  job.barrier();
  if (world_rank() == 0) {
    std::filesystem::remove(file);
  }
}

}  // namespace
}  // namespace isochron
