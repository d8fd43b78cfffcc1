// Gradients that travel as int8 on four ranks: what rounding owes is never more than that of one step, whatever happens
// to steps, members and jobs.
#include "isochron/engine/int8.h"

#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "tests/engine/shares.h"
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/torch.h>

#include "isochron/comm/mpi_backend.h"
#include "isochron/data/synthetic_images.h"
#include "isochron/engine/data_parallel.h"
#include "isochron/engine/error_feedback.h"
#include "isochron/engine/job.h"

namespace isochron {
namespace {

using testing::expect_same_bits_everywhere;
using testing::FirstRanks;
using testing::kUneven;
using testing::Split;
using testing::Tensors;
using testing::world_rank;

// The gradient has 1 for its largest number on rank 0, up to 1.75 on others. Less than half of 1 / 127, so
// that it is rounded to 0.
constexpr double kSmall = 0.002;
// Two stages, each of which may owe half a step of 1 / 127 of the largest number, 2.
constexpr double kMostOwed = 2 * 2 * 0.5 / 127;
constexpr std::int64_t kSteadySteps = 12;

// Every worker's gradient is the same in every step: one large number, and small ones.
struct Steady : torch::nn::Module {
  Steady() {
    weight = register_parameter("weight", torch::zeros({300}, torch::kDouble));
    more = register_parameter("more", torch::zeros({300}, torch::kDouble));
  }

  static at::Tensor gradient_of(int rank) {
    at::Tensor gradient = torch::full({300}, kSmall * (1.0 + 0.25 * rank), torch::kDouble);
    gradient[0] = 1.0;
    return gradient;
  }

  at::Tensor loss_of_weight() const { return weight.dot(gradient_of(world_rank())); }
  at::Tensor loss_of_more() const { return 2 * more.dot(gradient_of(world_rank())); }
  at::Tensor loss() const { return loss_of_weight() + loss_of_more(); }

  // From where SGD with a rate of 1 would be after so many steps if nothing were rounded.
  double distance_after(std::int64_t steps, const Split& split = kUneven) const {
    at::Tensor mean = torch::zeros({300}, torch::kDouble);
    for (std::size_t rank = 0; rank < split.size(); ++rank) {
      mean += gradient_of(static_cast<int>(rank)) * static_cast<double>(split[rank]);
    }
    mean *= static_cast<double>(steps) / static_cast<double>(testing::total(split));
    return at::max((weight + mean).abs().max(), (more + 2 * mean).abs().max()).item<double>();
  }

  at::Tensor weight;
  at::Tensor more;
};

torch::optim::SGD plain_sgd(const Tensors& parameters) {
  return torch::optim::SGD(parameters, 1.0);
}

JobOptions int8_options(OnNonFinite on_nonfinite = OnNonFinite::kStop) {
  JobOptions options{{.global_batch = testing::total(kUneven), .policy = "static:weights=5/9/17/33", .seed = 5}};
  options.gradients.compression = Compression::kInt8;
  options.on_nonfinite = on_nonfinite;
  return options;
}

std::shared_ptr<data::Dataset> steady_samples(std::int64_t steps = kSteadySteps) {
  return data::synthetic_images(
      {.samples = steps * testing::total(kUneven), .classes = 2, .channels = 1, .height = 2, .width = 2, .seed = 1});
}

// What is left of the epoch, up to that step; `failing` says whether this worker's loss is not a number.
void take_steps(
    Job& job,
    Steady& model,
    torch::optim::Optimizer& optimizer,
    std::int64_t until,
    const std::function<bool()>& failing = [] { return false; }) {
  for ([[maybe_unused]] const auto& batch : job.loader(steady_samples(until))) {
    const double factor = failing() ? std::numeric_limits<double>::quiet_NaN() : 1.0;
    if (job.backward(model.loss() * factor)) {
      optimizer.step();
    }
    optimizer.zero_grad();
  }
}

TEST(Int8Test, ComesBackWithinHalfAStepOfItsBlockAndTheSameFromTheSameBytes) {
  torch::manual_seed(1);
  const at::Tensor rows = torch::randn({3, 4 * kInt8Block}) * torch::logspace(-6, 6, 4 * kInt8Block);
  const at::Tensor packed = pack_int8(rows);
  EXPECT_EQ(packed.numel(), 3 * 4 * (kInt8Block + 4));
  const at::Tensor back = unpack_int8(packed, torch::kFloat);
  const at::Tensor blocks = rows.view({3, 4, kInt8Block});
  const at::Tensor off = (back.view_as(blocks) - blocks).abs().amax(2);
  EXPECT_TRUE((off <= blocks.abs().amax(2) * (0.5001 / 127)).all().item<bool>());
  const at::Tensor zeros = torch::zeros({1, kInt8Block});
  EXPECT_TRUE(unpack_int8(pack_int8(zeros), torch::kFloat).equal(zeros));
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    at::Tensor some = torch::ones({1, 2 * kInt8Block});
    some[0][kInt8Block + 7] = bad;
    const at::Tensor found = unpack_int8(pack_int8(some), torch::kFloat).isfinite();
    EXPECT_TRUE(found.narrow(1, 0, kInt8Block).all().item<bool>());
    EXPECT_FALSE(found.narrow(1, kInt8Block, kInt8Block).any().item<bool>());
  }
}

TEST(Int8Test, OwesNoMoreThanTheRoundingOfAStep) {
  Steady model;
  auto optimizer = plain_sgd(model.parameters());
  Job job(int8_options());
  job.prepare(model, optimizer);
  take_steps(job, model, optimizer, kSteadySteps);
  EXPECT_EQ(job.step(), kSteadySteps);
  EXPECT_LT(model.distance_after(kSteadySteps), kMostOwed);
  EXPECT_GT(model.distance_after(kSteadySteps), 1e-6);
  expect_same_bits_everywhere(model.parameters());
}

// A group and what its members owe, without a job.
class Exchange {
 public:
  Exchange(Steady& model, MPI_Comm comm, std::shared_ptr<ErrorFeedback> feedback, const Split& split)
      : group_(make_group(make_mpi_backend(comm))),
        model_(model),
        weight_(loss_weight(testing::my_batch(split), testing::total(split), group_->getSize())),
        feedback_(std::move(feedback)),
        parallel_(model.parameters(), {}, group_, {.compression = Compression::kInt8}, Start::kAsIs, feedback_) {}

  void average() {
    model_.zero_grad();
    parallel_.begin_step();
    parallel_.backward(model_.loss(), weight_);
  }
  void step() {
    average();
    plain_sgd(model_.parameters()).step();
  }
  at::Tensor owed() const { return feedback_->mean(group_); }

 private:
  const Group group_;
  Steady& model_;
  const double weight_;
  const std::shared_ptr<ErrorFeedback> feedback_;
  DataParallel parallel_;
};

TEST(Int8Test, WithoutFeedbackSmallNumbersNeverCount) {
  Steady model;
  const auto feedback = std::make_shared<ErrorFeedback>(model.parameters(), testing::world_size());
  Exchange exchange(model, MPI_COMM_WORLD, feedback, kUneven);
  for (std::int64_t step = 0; step < kSteadySteps; ++step) {
    exchange.step();
    feedback->undo();
  }
  EXPECT_GT(model.distance_after(kSteadySteps), static_cast<double>(kSteadySteps) * 2 * kSmall);
  EXPECT_GT(model.distance_after(kSteadySteps), 2 * kMostOwed);
}

TEST(Int8Test, AStepThatIsUndoneLeavesWhatIsOwedAsItWas) {
  Steady model;
  const auto feedback = std::make_shared<ErrorFeedback>(model.parameters(), testing::world_size());
  Exchange exchange(model, MPI_COMM_WORLD, feedback, kUneven);
  exchange.step();
  const at::Tensor before = feedback->of(model.parameters());
  for (int i = 0; i < 3; ++i) {
    feedback->remember();
    exchange.average();
    EXPECT_FALSE(feedback->of(model.parameters()).equal(before));
    feedback->undo();
    EXPECT_TRUE(feedback->of(model.parameters()).equal(before));
  }
}

TEST(Int8Test, StepsThatAreLeftOutLeaveNothingBehind) {
  Steady undisturbed;
  {
    auto optimizer = plain_sgd(undisturbed.parameters());
    Job job(int8_options());
    job.prepare(undisturbed, optimizer);
    take_steps(job, undisturbed, optimizer, kSteadySteps);
  }
  Steady model;
  auto optimizer = plain_sgd(model.parameters());
  Job job(int8_options(OnNonFinite::kSkip));
  job.prepare(model, optimizer);
  const auto every_second = [&] { return world_rank() == 1 && job.step() % 2 == 1; };
  take_steps(job, model, optimizer, 2 * kSteadySteps, every_second);
  EXPECT_EQ(job.step(), 2 * kSteadySteps);
  EXPECT_LT(model.distance_after(kSteadySteps), kMostOwed);
  EXPECT_TRUE(model.weight.equal(undisturbed.weight));
  EXPECT_TRUE(model.more.equal(undisturbed.more));
}

TEST(Int8Test, AStepThatMemoryDidNotHoldLeavesNothingBehind) {
  Steady model;
  auto optimizer = plain_sgd(model.parameters());
  JobOptions options = int8_options();
  options.policy = "uniform";
  Job job(options);
  job.prepare(model, optimizer);
  bool failing = world_rank() == 1;
  int dropped = 0;
  for (const auto& batch : job.loader(steady_samples())) {
    const bool taken = job.backward(batch, [&](const at::Tensor& /*data*/, const at::Tensor& /*target*/) {
      if (job.step() == 5 && std::exchange(failing, false)) {
        at::empty({std::int64_t{1} << 46});  // PyTorch's own failure
      }
      return model.loss();
    });
    if (taken) {
      optimizer.step();
    } else {
      ++dropped;
    }
    optimizer.zero_grad();
  }
  EXPECT_EQ(job.step(), kSteadySteps);
  EXPECT_EQ(dropped, 1);
  EXPECT_LT(model.distance_after(kSteadySteps, {16, 16, 16, 16}), 2 * kMostOwed);  // some steps had other shares
  expect_same_bits_everywhere(model.parameters());
}

TEST(Int8Test, WhatIsOwedSurvivesCheckpointsAndTheRunGoesOnBitByBit) {
  const auto file = std::filesystem::path(ISOCHRON_TEST_DATA) / "int8_test.ckpt";
  Steady whole;
  {
    auto optimizer = plain_sgd(whole.parameters());
    Job job(int8_options());
    job.prepare(whole, optimizer);
    for ([[maybe_unused]] const auto& batch : job.loader(steady_samples())) {
      job.backward(whole.loss());
      optimizer.step();
      optimizer.zero_grad();
      if (job.step() == 5) {
        job.save(file);
      }
    }
  }
  Steady resumed;
  auto optimizer = plain_sgd(resumed.parameters());
  Job job(int8_options());
  job.prepare(resumed, optimizer);
  job.restore(file);
  EXPECT_EQ(job.step(), 6);
  take_steps(job, resumed, optimizer, kSteadySteps);
  EXPECT_LT(resumed.distance_after(kSteadySteps), kMostOwed);
  EXPECT_TRUE(resumed.weight.equal(whole.weight));
  EXPECT_TRUE(resumed.more.equal(whole.more));
  job.barrier();
  if (world_rank() == 0) {
    std::filesystem::remove(file);
  }
}

TEST(Int8Test, AJobThatIsRestoredAfterEveryStepOwesNoMore) {
  const auto file = std::filesystem::path(ISOCHRON_TEST_DATA) / "int8_steps.ckpt";
  Steady model;
  for (std::int64_t done = 0; done < kSteadySteps; ++done) {
    Steady next;
    auto optimizer = plain_sgd(next.parameters());
    Job job(int8_options());
    job.prepare(next, optimizer);
    if (done > 0) {
      job.restore(file);
    }
    for ([[maybe_unused]] const auto& batch : job.loader(steady_samples())) {
      job.backward(next.loss());
      optimizer.step();
      break;
    }
    job.save(file);
    model.weight = next.weight;
    model.more = next.more;
    job.close();
  }
  EXPECT_LT(model.distance_after(kSteadySteps), kMostOwed);
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 0) {
    std::filesystem::remove(file);
  }
}

// Errors are kept by parameter, whatever is exchanged together.
TEST(Int8Test, PassesOfSeveralOptimizersOweNoMore) {
  Steady model;
  auto of_weight = plain_sgd({model.weight});
  auto of_more = plain_sgd({model.more});
  Job job(int8_options());
  job.prepare(model, {of_weight, of_more});
  for ([[maybe_unused]] const auto& batch : job.loader(steady_samples())) {
    if (job.step() % 2 == 0) {
      job.backward(model.loss_of_weight(), of_weight);
      of_weight.step();
      job.backward(model.loss_of_more(), of_more);
      of_more.step();
    } else {
      job.backward(model.loss(), {of_weight, of_more});
      of_weight.step();
      of_more.step();
    }
    of_weight.zero_grad();
    of_more.zero_grad();
  }
  EXPECT_EQ(job.step(), kSteadySteps);
  EXPECT_LT(model.distance_after(kSteadySteps), kMostOwed);
  expect_same_bits_everywhere(model.parameters());
}

// One of four goes, and comes again with nothing that it owes.
TEST(Int8Test, WhatThoseOweWhoStayIsTheSameAmongMoreAndFewer) {
  const Split fewer{5, 9, 17};
  const bool stays = world_rank() < 3;
  Steady model;
  auto feedback = std::make_shared<ErrorFeedback>(model.parameters(), 4);
  at::Tensor mine;
  {
    Exchange four(model, MPI_COMM_WORLD, feedback, kUneven);
    for (int step = 0; step < 5; ++step) {
      four.step();
    }
    mine = feedback->of(model.parameters());
  }
  const FirstRanks first(3);
  at::Tensor owed;
  if (stays) {
    feedback->follow(3);
    Exchange three(model, first.comm(), feedback, fewer);
    const auto group = make_group(make_mpi_backend(first.comm()));
    Tensors sum{mine / 4};
    group->allreduce(sum)->wait();
    EXPECT_TRUE(at::allclose(three.owed(), sum.front(), 1e-12, 1e-15));
    for (int step = 0; step < 5; ++step) {
      three.step();
    }
    owed = three.owed();
  } else {
    feedback = std::make_shared<ErrorFeedback>(model.parameters(), 4);
    owed = torch::zeros({600}, torch::kDouble);
  }
  MPI_Bcast(owed.data_ptr(), static_cast<int>(owed.numel()), MPI_DOUBLE, 0, MPI_COMM_WORLD);
  for (at::Tensor& parameter : model.parameters()) {
    MPI_Bcast(parameter.data_ptr(), static_cast<int>(parameter.numel()), MPI_DOUBLE, 0, MPI_COMM_WORLD);
  }
  if (stays) {
    feedback->follow(4);
  }
  Exchange four(model, MPI_COMM_WORLD, feedback, kUneven);
  EXPECT_TRUE(at::allclose(four.owed(), owed, 1e-12, 1e-15));
  EXPECT_LT(owed.abs().max().item<double>(), kMostOwed);
  for (int step = 0; step < 5; ++step) {
    four.step();
  }
  EXPECT_LT(four.owed().abs().max().item<double>(), kMostOwed);
  expect_same_bits_everywhere(model.parameters());
}

}  // namespace
}  // namespace isochron
