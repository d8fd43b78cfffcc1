// Two ranks train in local rounds; what they must equal is computed by one process that takes every worker's local
// steps one after the other, in double precision.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/ranks/group.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "isochron/core/error.h"
#include "isochron/core/replica/rounds.h"
#include "isochron/data/sample_stream.h"
#include "isochron/data/synthetic_images.h"
#include "isochron/engine/job.h"
#include "isochron/engine/optimizer_state.h"

namespace isochron {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using testing::world_rank;

constexpr std::int64_t kBatch = 24;
constexpr std::uint64_t kSeed = 5;
constexpr double kExact = 1e-10;
const char* const kOneToTwo = "static:weights=1/2";  // 8 and 16 samples of a step

using Model = torch::nn::Sequential;
using DatasetPointer = std::shared_ptr<data::Dataset>;

DatasetPointer images(std::int64_t size) {
  return data::synthetic_images({.samples = size, .classes = 4, .channels = 1, .height = 8, .width = 8, .seed = 1});
}

Model make_model(bool with_statistics) {
  using namespace torch::nn;
  torch::manual_seed(3);
  Model model = with_statistics
                    ? Model(Conv2d(Conv2dOptions(1, 6, 3)), BatchNorm2d(6), ReLU(), Flatten(), Linear(6 * 36, 4))
                    : Model(Flatten(), Linear(64, 32), Tanh(), Linear(32, 4));
  model->to(torch::kDouble);
  return model;
}

at::Tensor loss_of(Model& model, const at::Tensor& x, const at::Tensor& y) {
  return torch::nn::functional::cross_entropy(model->forward(x.to(torch::kDouble)), y);
}

torch::optim::SGD make_optimizer(const Model& model, double momentum) {
  return torch::optim::SGD(model->parameters(), torch::optim::SGDOptions(0.05).momentum(momentum));
}

// Parameters and buffers, one behind the other.
at::Tensor flat(const Model& model) {
  std::vector<at::Tensor> parts;
  for (const std::vector<at::Tensor>& tensors : {model->parameters(), model->buffers()}) {
    for (const at::Tensor& tensor : tensors) {
      parts.push_back(tensor.detach().to(torch::kDouble).flatten().clone());
    }
  }
  return at::cat(parts);
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

JobSettings settings(std::int64_t round_steps, const std::string& policy = kOneToTwo, Outer outer = Outer::kAverage) {
  return {
      .global_batch = kBatch,
      .policy = policy,
      .seed = kSeed,
      .sync = Sync::kLocal,
      .rounds = {.steps = round_steps, .outer = outer}};
}

// Who takes how many samples of a round of so many local steps.
struct Round {
  std::int64_t steps = 0;
  std::vector<std::int64_t> shares;

  std::int64_t size() const { return std::accumulate(shares.begin(), shares.end(), std::int64_t{0}); }
};

Round round_of(const StepRecord& record) {
  Round round;
  for (const WorkerStep& worker : record.workers) {
    round.shares.push_back(worker.batch);
  }
  round.steps = Rounds::steps_of(round.size(), kBatch);
  return round;
}

// What docs/local.md says, in one process.
class Alone {
 public:
  Alone(Model& model, const DatasetPointer& dataset, double momentum, Outer outer)
      : model_(model),
        order_{.dataset_size = dataset->size(), .global_batch = kBatch, .seed = kSeed},
        stream_(dataset, order_, data::Augment(dataset->shape(), {.seed = kSeed})),
        momentum_(momentum),
        outer_(outer) {}

  void train(const std::vector<Round>& rounds) {
    for (const Round& round : rounds) {
      take(round);
    }
  }

 private:
  struct Batch {
    at::Tensor x;
    at::Tensor y;
  };

  Batch batch_of(const Interval& positions) {
    const Interval all = stream_.running(SamplerState{.epoch = epoch_}, positions);
    const Batch batch{.x = at::empty({all.size(), 1, 8, 8}), .y = at::empty({all.size()}, at::kLong)};
    for (std::int64_t i = 0; i < all.size(); ++i) {
      const at::Tensor sample = batch.x[i];
      batch.y[i] = stream_.fetch(all.first + i, {static_cast<std::byte*>(sample.mutable_data_ptr()), sample.nbytes()});
    }
    return batch;
  }

  void take(const Round& round) {
    const std::vector<at::Tensor> start = copies(model_->parameters());
    const std::vector<at::Tensor> statistics = copies(model_->buffers());
    std::vector<at::Tensor> change(start.size());
    std::vector<at::Tensor> mean(statistics.size());
    for (std::size_t worker = 0; worker < round.shares.size(); ++worker) {
      const Interval share{.first = position_, .last = position_ + round.shares[worker]};
      position_ = share.last;
      fill(model_->parameters(), start);
      fill(model_->buffers(), statistics);
      torch::optim::SGD optimizer = make_optimizer(model_, momentum_);
      restore_optimizer_state(optimizer, states_[worker]);
      for (const Interval& part : Rounds::parts(share, round.steps)) {
        const Batch batch = batch_of(part);
        loss_of(model_, batch.x, batch.y).backward();
        optimizer.step();
        optimizer.zero_grad();
      }
      states_[worker].clear();
      for (const auto& [name, tensor] : optimizer_state(optimizer)) {
        states_[worker][name] = tensor.clone();
      }
      const double weight = static_cast<double>(share.size()) / static_cast<double>(round.size());
      add(change, model_->parameters(), weight, start);
      add(mean, model_->buffers(), weight, {});
    }
    fill(model_->parameters(), stepped(start, change));
    fill(model_->buffers(), mean);
    if (position_ == order_.dataset_size) {
      position_ = 0;
      ++epoch_;
    }
  }

  // Along the mean change, which is end - start.
  std::vector<at::Tensor> stepped(const std::vector<at::Tensor>& start, const std::vector<at::Tensor>& change) {
    velocity_.resize(start.size());
    std::vector<at::Tensor> values;
    for (std::size_t i = 0; i < start.size(); ++i) {
      if (outer_ == Outer::kAverage) {
        values.push_back(start[i] + change[i]);
        continue;
      }
      velocity_[i] = velocity_[i].defined() ? 0.9 * velocity_[i] + change[i] : change[i].clone();
      values.push_back(start[i] + 0.7 * (change[i] + 0.9 * velocity_[i]));
    }
    return values;
  }

  static std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> found;
    for (const at::Tensor& tensor : tensors) {
      found.push_back(tensor.detach().clone());
    }
    return found;
  }

  static void fill(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& values) {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      at::Tensor(tensors[i]).copy_(tensors[i].is_floating_point() ? values[i] : values[i].to(at::kDouble).round());
    }
  }

  static void add(
      std::vector<at::Tensor>& sums,
      const std::vector<at::Tensor>& tensors,
      double weight,
      const std::vector<at::Tensor>& less) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      at::Tensor part = tensors[i].detach().to(at::kDouble);
      part = weight * (less.empty() ? part : part - less[i]);
      sums[i] = sums[i].defined() ? sums[i] + part : part;
    }
  }

  Model& model_;
  const SamplerOptions order_;
  const data::SampleStream stream_;
  const double momentum_;
  const Outer outer_;
  std::int64_t epoch_ = 0;
  std::int64_t position_ = 0;
  std::map<std::size_t, std::map<std::string, at::Tensor>> states_;  // of every worker's optimizer, by worker
  std::vector<at::Tensor> velocity_;
};

// Trains one epoch and returns the model. `each` is called with every local batch, before backward().
struct Trained {
  Model model;
  std::vector<StepRecord> records;
  std::vector<std::int64_t> sizes;  // of this worker's local batches
  bool complete = false;
};

Trained train(
    const JobSettings& chosen,
    const DatasetPointer& dataset,
    bool with_statistics,
    double momentum,
    const std::function<void(std::int64_t)>& each = [](std::int64_t) {}) {
  Trained trained{.model = make_model(with_statistics)};
  auto optimizer = make_optimizer(trained.model, momentum);
  JobOptions options{chosen};
  options.on_step = [&](const StepRecord& record) { trained.records.push_back(record); };
  Job job(options);
  job.prepare(*trained.model, optimizer);
  for (const auto& [x, y] : job.loader(dataset)) {
    trained.sizes.push_back(x.size(0));
    each(x.size(0));
    job.backward(loss_of(trained.model, x, y));
    optimizer.step();
    optimizer.zero_grad();
  }
  trained.complete = job.ledger().complete();
  job.close();
  return trained;
}

std::vector<Round> rounds_of(const Trained& trained) {
  std::vector<Round> rounds;
  std::ranges::transform(trained.records, std::back_inserter(rounds), round_of);
  return rounds;
}

TEST(LocalJobTest, RoundsOfOneStepOfSgdAreBsp) {
  const auto dataset = images(kBatch * 6 + 7);
  JobSettings in_step = settings(0);
  in_step.sync = Sync::kBsp;
  in_step.rounds = {};
  const Trained bsp = train(in_step, dataset, /*with_statistics=*/false, /*momentum=*/0.0);
  const Trained local = train(settings(1), dataset, /*with_statistics=*/false, /*momentum=*/0.0);
  EXPECT_GT(distance(flat(bsp.model), flat(make_model(false))), 1e-3);  // else the comparison would say nothing
  EXPECT_LT(distance(flat(local.model), flat(bsp.model)), kExact);
  ASSERT_EQ(local.records.size(), bsp.records.size());
  for (std::size_t i = 0; i < bsp.records.size(); ++i) {
    EXPECT_NEAR(local.records[i].loss, bsp.records[i].loss, kExact) << "step " << i;
  }
  EXPECT_TRUE(local.complete);

  JobSettings mean = settings(1);
  mean.weighting = Weighting::kMean;
  const Trained unweighted = train(mean, dataset, /*with_statistics=*/false, /*momentum=*/0.0);
  EXPECT_GT(distance(flat(unweighted.model), flat(bsp.model)), 1e-5) << "the weights of unequal shares are needed";
}

TEST(LocalJobTest, RoundsAreLocalStepsOfEveryWorkerAndAStepAlongTheirMeanChange) {
  const auto dataset = images(kBatch * 8);
  for (const Outer outer : {Outer::kAverage, Outer::kNesterov}) {
    for (const bool with_statistics : {false, true}) {
      SCOPED_TRACE(std::string(name_of(kOuterNames, outer)) + (with_statistics ? ", BatchNorm" : ""));
      const Trained local = train(settings(3, kOneToTwo, outer), dataset, with_statistics, /*momentum=*/0.9);
      EXPECT_EQ(local.sizes, std::vector<std::int64_t>(8, world_rank() == 0 ? 8 : 16));
      ASSERT_EQ(local.records.size(), 3U);  // of 3, 3 and 2 local steps
      Model single = make_model(with_statistics);
      Alone(single, dataset, 0.9, outer).train({{3, {24, 48}}, {3, {24, 48}}, {2, {16, 32}}});
      EXPECT_GT(distance(flat(single), flat(make_model(with_statistics))), 1e-3);
      EXPECT_LT(distance(flat(local.model), flat(single)), kExact);
      EXPECT_TRUE(local.complete);
    }
  }
}

TEST(LocalJobTest, ASlowedWorkerTakesFewerSamplesOfEveryRoundAndTheyAreAveragedBySamples) {
  const auto dataset = images(kBatch * 40);
  // 4 ms a sample on rank 1, 1 ms on rank 0.
  const Trained local = train(settings(4, "isochron"), dataset, /*with_statistics=*/false, 0.9, [](std::int64_t size) {
    std::this_thread::sleep_for(size * std::chrono::milliseconds(world_rank() == 1 ? 4 : 1));
  });
  const std::vector<Round> rounds = rounds_of(local);
  ASSERT_EQ(rounds.size(), 10U);
  EXPECT_EQ(rounds.front().shares, (std::vector<std::int64_t>{48, 48}));
  EXPECT_LT(rounds.back().shares[1], 32) << "of 96";
  Model single = make_model(false);
  Alone(single, dataset, 0.9, Outer::kAverage).train(rounds);
  EXPECT_LT(distance(flat(local.model), flat(single)), kExact);
  EXPECT_TRUE(local.complete);
}

TEST(LocalJobTest, AWorkerWithoutSamplesOfARoundWaitsForIt) {
  const auto dataset = images(kBatch * 4);
  JobSettings chosen = settings(2, "static:weights=1/100000");
  chosen.min_batch = 0;
  const Trained local = train(chosen, dataset, /*with_statistics=*/true, 0.9);
  EXPECT_EQ(local.sizes.size(), world_rank() == 0 ? 0U : 4U);
  Model single = make_model(true);
  Alone(single, dataset, 0.9, Outer::kAverage).train({{2, {0, 48}}, {2, {0, 48}}});
  EXPECT_LT(distance(flat(local.model), flat(single)), kExact);
  EXPECT_TRUE(local.complete);
}

TEST(LocalJobTest, ChunksOfALocalBatchGiveItsGradient) {
  const auto dataset = images(kBatch * 4);
  const Trained whole = train(settings(2), dataset, /*with_statistics=*/false, 0.9);
  Model model = make_model(false);
  auto optimizer = make_optimizer(model, 0.9);
  JobSettings chosen = settings(2);
  chosen.micro_batch = 5;
  Job job(chosen);
  job.prepare(*model, optimizer);
  for (const auto& batch : job.loader(dataset)) {
    job.backward(batch, [&](const at::Tensor& x, const at::Tensor& y) {
      EXPECT_LE(x.size(0), 5);
      return loss_of(model, x, y);
    });
    optimizer.step();
    optimizer.zero_grad();
  }
  job.close();
  EXPECT_LT(distance(flat(model), flat(whole.model)), kExact);
}

TEST(LocalJobTest, ACheckpointHoldsTheOuterOptimizer) {
  const auto dataset = images(kBatch * 4);
  const std::filesystem::path path = std::filesystem::path(ISOCHRON_TEST_DATA) / "rounds.ckpt";
  const auto train_epochs = [&](std::int64_t from, std::int64_t to) {
    Model model = make_model(false);
    auto optimizer = make_optimizer(model, 0.0);
    Job job(settings(2, kOneToTwo, Outer::kNesterov));
    job.prepare(*model, optimizer);
    if (from > 0) {
      job.restore(path);
    }
    for ([[maybe_unused]] const auto epoch : job.epochs(to)) {
      for (const auto& [x, y] : job.loader(dataset)) {
        job.backward(loss_of(model, x, y));
        optimizer.step();
        optimizer.zero_grad();
      }
    }
    job.save(path);
    job.close();
    return flat(model);
  };
  const at::Tensor in_one_go = train_epochs(0, 6);
  train_epochs(0, 3);
  EXPECT_EQ(distance(train_epochs(3, 6), in_one_go), 0.0);
}

TEST(LocalJobTest, TheLoopEndsAndTheLastRoundIsCutWhereTheProgramSays) {
  const auto dataset = images(kBatch * 8);
  Model model = make_model(false);
  auto optimizer = make_optimizer(model, 0.0);
  Job job(settings(3));
  job.prepare(*model, optimizer);
  job.barrier_at(5);
  std::vector<std::int64_t> lengths;
  for (const auto& [x, y] : job.loader(dataset)) {
    lengths.push_back(job.round_steps());
    EXPECT_EQ(job.local_step(), std::ssize(lengths) == 5 ? 1 : (std::ssize(lengths) - 1) % 3);
    job.backward(loss_of(model, x, y));
    optimizer.step();
    optimizer.zero_grad();
  }
  EXPECT_THAT(lengths, ElementsAre(3, 3, 3, 2, 2));
  EXPECT_EQ(job.step(), 2);
  EXPECT_EQ(job.position(), 5 * kBatch);
}

TEST(LocalJobTest, ARoundThatIsNotFinishedDidNotHappenAndIsNotSaved) {
  const auto dataset = images(kBatch * 8);
  Model model = make_model(true);
  auto optimizer = make_optimizer(model, 0.9);
  const at::Tensor start = flat(model);
  Job job(settings(4));
  job.prepare(*model, optimizer);
  for (const auto& [x, y] : job.loader(dataset)) {
    job.backward(loss_of(model, x, y));
    optimizer.step();
    optimizer.zero_grad();
    EXPECT_THAT(
        [&] { job.save("nowhere"); },
        ThrowsMessage<std::logic_error>(HasSubstr("save() within a round, after 1 of 4 local steps; permitted: ")));
    break;
  }
  EXPECT_GT(distance(flat(model), start), 0.0);
  job.close();
  EXPECT_EQ(distance(flat(model), start), 0.0);
  EXPECT_TRUE(optimizer_state(optimizer).empty());
}

TEST(LocalJobTest, ARoundThatIsNotFiniteIsLeftOutOrEndsTheJob) {
  const auto dataset = images(kBatch * 8);
  for (const OnNonFinite what : {OnNonFinite::kSkip, OnNonFinite::kStop}) {
    Model model = make_model(false);
    auto optimizer = make_optimizer(model, 0.9);
    JobSettings chosen = settings(2);
    chosen.on_nonfinite = what;
    std::vector<std::string> events;
    JobOptions options{chosen};
    options.on_event = [&](const EventRecord& event) { events.push_back(event.event); };
    Job job(options);
    job.prepare(*model, optimizer);
    std::map<std::int64_t, at::Tensor> before;  // the rounds, by number
    const auto run = [&] {
      for (const auto& [x, y] : job.loader(dataset)) {
        if (job.local_step() == 0) {
          before[job.step()] = flat(model);
        }
        const bool bad = world_rank() == 1 && job.step() == 1 && job.local_step() == 1;
        job.backward(loss_of(model, x, y) * (bad ? std::numeric_limits<double>::quiet_NaN() : 1.0));
        optimizer.step();
        optimizer.zero_grad();
      }
    };
    if (what == OnNonFinite::kStop) {
      EXPECT_THAT(
          run,
          ThrowsMessage<NonFiniteError>(::testing::AllOf(
              ContainsRegex("step 1: the gradient is not finite on [^ ]+-1 [(]rank 1"),
              HasSubstr("model and optimizer are as before the round"))));
      EXPECT_EQ(distance(flat(model), before[1]), 0.0);
      continue;
    }
    run();
    EXPECT_EQ(distance(before[2], before[1]), 0.0);
    EXPECT_GT(distance(before[3], before[2]), 0.0);
    EXPECT_THAT(events, ElementsAre("numbers"));
    EXPECT_EQ(job.step(), 4);
  }
}

TEST(LocalJobTest, TheLengthOfRoundsFollowsTheNetwork) {
  const auto dataset = images(kBatch * 100);
  JobSettings chosen = settings(0);
  chosen.rounds.network_share = 0.001;  // an exchange is more than a thousandth of a local step
  const Trained local = train(chosen, dataset, /*with_statistics=*/false, 0.0);
  const std::vector<Round> rounds = rounds_of(local);
  EXPECT_EQ(rounds.front().steps, 1);
  EXPECT_GT(std::ranges::max(rounds, {}, &Round::steps).steps, 8);
  EXPECT_TRUE(local.complete);
}

TEST(LocalJobTest, WhatItCannotDoIsRefused) {
  const auto refusal_of = [](const std::function<void(JobSettings&)>& change) {
    JobSettings chosen = settings(4);
    change(chosen);
    try {
      const Job job(chosen);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_EQ(
      refusal_of([](JobSettings& one) { one.sync = Sync::kBsp; }),
      "round_steps is 4 with sync 'bsp'; permitted: with sync 'local'");
  EXPECT_EQ(
      refusal_of([](JobSettings& one) { one.gradients.compression = Compression::kBf16; }),
      "compression is 'bf16' with sync 'local'; permitted: with sync 'bsp'");
  EXPECT_EQ(
      refusal_of([](JobSettings& one) { one.rounds.network_share = 2.0; }),
      "network_share is 2; permitted: a finite number, 0.001 to 0.9");
  EXPECT_EQ(
      refusal_of([](JobSettings& one) { one.on_nonfinite = OnNonFinite::kRollBack; }),
      "on_nonfinite is 'rollback' with sync 'local'; permitted: with sync 'bsp'");
  EXPECT_EQ(
      refusal_of([](JobSettings& one) { one.rounds.steps = world_rank() == 1 ? 3 : 4; }),
      "round_steps is 3 on rank 1; permitted: what rank 0 has, 4");
}

TEST(LocalJobTest, SeveralModelsAndPassesAreRefused) {
  Model model = make_model(false);
  Model other = make_model(true);
  auto optimizer = make_optimizer(model, 0.0);
  auto other_optimizer = make_optimizer(other, 0.0);
  Job job(settings(2));
  EXPECT_THAT(
      [&] { job.prepare({*model, *other}, {optimizer, other_optimizer}); },
      ThrowsMessage<std::invalid_argument>(
          std::string("prepare() got 2 models and 2 optimizers with sync 'local'; permitted: one of each")));
  job.prepare(*model, optimizer);
  for (const auto& [x, y] : job.loader(images(kBatch))) {
    const at::Tensor loss = loss_of(model, x, y);
    EXPECT_THAT(
        [&] { job.backward(loss, optimizer); },
        ThrowsMessage<std::invalid_argument>(HasSubstr("permitted: one backward(loss) for every batch")));
    job.backward(loss);
    optimizer.step();
  }
  job.finish_step();
  EXPECT_EQ(job.step(), 1);
}

}  // namespace
}  // namespace isochron
