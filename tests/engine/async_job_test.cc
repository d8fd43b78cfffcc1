// Four ranks train asynchronously through servers; what they must equal is known, or computed by the job in step.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/ranks/group.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "isochron/core/error.h"
#include "isochron/core/staleness/clock_table.h"
#include "isochron/data/synthetic_images.h"
#include "isochron/engine/job.h"

namespace isochron {
namespace {

using ::testing::HasSubstr;
using testing::world_rank;

constexpr std::int64_t kGlobalBatch = 64;
constexpr std::uint64_t kSeed = 5;
const char* const kUneven = "static:weights=5/9/17/33";

std::shared_ptr<data::Dataset> images(std::int64_t size) {
  return data::synthetic_images({.samples = size, .classes = 4, .channels = 1, .height = 8, .width = 8, .seed = 1});
}

torch::nn::Sequential make_model(bool with_norm = false) {
  torch::manual_seed(3);
  using namespace torch::nn;
  if (with_norm) {
    return Sequential(Conv2d(Conv2dOptions(1, 6, 3).bias(false)), BatchNorm2d(6), ReLU(), Flatten(), Linear(216, 4));
  }
  return Sequential(Flatten(), Linear(64, 32), Tanh(), Linear(32, 4));
}

torch::Tensor loss_of(torch::nn::Sequential& model, const at::Tensor& x, const at::Tensor& y) {
  return torch::nn::functional::cross_entropy(model->forward(x), y);
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

bool same_on_all_ranks(Job& job, const torch::nn::Sequential& model) {
  double digest = 0.0;
  for (const at::Tensor& tensor : model->parameters()) {
    digest += tensor.detach().to(at::kDouble).abs().sum().item<double>();
  }
  for (const at::Tensor& tensor : model->buffers()) {
    digest += tensor.detach().to(at::kDouble).abs().sum().item<double>();
  }
  std::vector<double> digests(static_cast<std::size_t>(job.size()));
  digests[static_cast<std::size_t>(job.rank())] = digest;
  digests = job.sum(digests);
  return std::ranges::all_of(digests, [&](double other) { return other == digest; });
}

JobOptions options_for(Sync sync, const std::string& policy = "uniform") {
  JobOptions options{{.global_batch = kGlobalBatch, .policy = policy, .seed = kSeed, .sync = sync}};
  options.timeout = 60.0;
  return options;
}

void train(
    Job& job,
    torch::nn::Sequential& model,
    torch::optim::Optimizer& optimizer,
    const std::shared_ptr<data::Dataset>& dataset,
    std::int64_t epochs) {
  job.prepare(*model, optimizer);
  for ([[maybe_unused]] const auto epoch : job.epochs(epochs)) {
    for (const auto& [x, y] : job.loader(dataset)) {
      job.backward(loss_of(model, x, y));
      optimizer.step();
      optimizer.zero_grad();
    }
  }
}

enum class Rule : std::uint8_t { kMomentum, kAdam, kAdamW };

std::unique_ptr<torch::optim::Optimizer> make_optimizer(Rule rule, torch::nn::Sequential& model) {
  using namespace torch::optim;
  switch (rule) {
    case Rule::kMomentum:
      return std::make_unique<SGD>(model->parameters(), SGDOptions(0.05).momentum(0.9).weight_decay(1e-3));
    case Rule::kAdam:
      return std::make_unique<Adam>(model->parameters(), AdamOptions(0.01));
    case Rule::kAdamW:
      return std::make_unique<AdamW>(model->parameters(), AdamWOptions(0.01).weight_decay(0.1));
  }
  return nullptr;
}

TEST(AsyncJobTest, BoundZeroGivesTheResultOfBsp) {
  const auto dataset = images(1000);  // 15 rounds of 64 and one of 40
  for (const Rule rule : {Rule::kMomentum, Rule::kAdam, Rule::kAdamW}) {
    auto expected = make_model();
    auto model = make_model();
    auto in_step = make_optimizer(rule, expected);
    auto optimizer = make_optimizer(rule, model);
    {
      Job job(options_for(Sync::kBsp, kUneven));
      train(job, expected, *in_step, dataset, 2);
    }
    JobOptions options = options_for(Sync::kSsp, kUneven);
    options.async.staleness = 0;
    Job job(options);
    train(job, model, *optimizer, dataset, 2);
    EXPECT_EQ(job.step(), 32);
    EXPECT_LT(distance(model, expected), 1e-4) << static_cast<int>(rule);
    EXPECT_TRUE(same_on_all_ranks(job, model));
  }
}

TEST(AsyncJobTest, NoUpdateIsLostAndFixedGradientsAddUpExactly) {
  // Every update subtracts 2^-6 times the same whole numbers, so that sums are exact in any order: whatever the
  // updates' order and staleness, the parameters are the first ones less their number times the step.
  const auto dataset = images(1000);
  auto model = make_model();
  std::vector<at::Tensor> first;
  std::vector<at::Tensor> gradients;
  {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : model->parameters()) {
      parameter.copy_((parameter * 64).round());
      first.push_back(parameter.detach().clone());
      gradients.push_back(at::arange(parameter.numel()).remainder(7).sub(3).view(parameter.sizes()).to(at::kFloat));
    }
  }
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.015625));
  std::int64_t updates = 0;
  JobOptions options = options_for(Sync::kAsp, "isochron");
  options.on_update = [&](const UpdateRecord& /*record*/) { ++updates; };
  Job job(options);
  job.prepare(*model, optimizer);
  for ([[maybe_unused]] const auto epoch : job.epochs(3)) {
    for ([[maybe_unused]] const auto& batch : job.loader(dataset)) {
      at::Tensor loss = at::zeros({});
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        loss = loss + (model->parameters()[i] * gradients[i]).sum();
      }
      job.backward(loss);
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  EXPECT_GE(updates, 3 * 1000 / kGlobalBatch);
  for (std::size_t i = 0; i < first.size(); ++i) {
    const at::Tensor expected = first[i] - gradients[i] * 0.015625 * updates;
    EXPECT_TRUE(at::equal(model->parameters()[i].detach(), expected)) << "parameter " << i;
  }
  // A piece a server here, and every update sends all of them.
  EXPECT_EQ(job.push_counts().sent, 4 * updates);
  EXPECT_EQ(job.push_counts().applied, 4 * updates);
  EXPECT_TRUE(job.ledger().complete());
}

// A moment in a worker's life; all clocks of this host are one.
struct Moment {
  double seconds = 0.0;
  double worker = 0.0;
  double start = 0.0;  // of an iteration; else 0: it is finished

  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

std::vector<Moment> of_all_ranks(const std::vector<Moment>& mine) {
  const int count = static_cast<int>(mine.size() * 3);
  std::vector<int> counts(4);
  MPI_Allgather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, MPI_COMM_WORLD);
  std::vector<int> places(4);
  for (std::size_t i = 1; i < 4; ++i) {
    places[i] = places[i - 1] + counts[i - 1];
  }
  std::vector<Moment> all(static_cast<std::size_t>(places[3] + counts[3]) / 3);
  MPI_Allgatherv(mine.data(), count, MPI_DOUBLE, all.data(), counts.data(), places.data(), MPI_DOUBLE, MPI_COMM_WORLD);
  std::ranges::sort(all, {}, &Moment::seconds);
  return all;
}

// What the workers lived through, each of whose iterations begins with `delay`(its number).
std::vector<Moment> moments_of(const JobOptions& options, const std::function<void(int)>& delay) {
  auto model = make_model();
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05));
  Job job(options);
  job.prepare(*model, optimizer);
  const auto dataset = images(1000);
  std::vector<Moment> mine;
  const auto me = static_cast<double>(world_rank());
  for ([[maybe_unused]] const auto epoch : job.epochs(1)) {
    for (const auto& [x, y] : job.loader(dataset)) {
      mine.push_back({.seconds = Moment::now(), .worker = me, .start = 1.0});
      delay(static_cast<int>(mine.size() / 2));
      job.backward(loss_of(model, x, y));
      job.finish_step();
      mine.push_back({.seconds = Moment::now(), .worker = me});
    }
  }
  return of_all_ranks(mine);
}

// Through the state machine whose protocol is model-checked; the largest lead that was seen.
std::int64_t replay(const std::vector<Moment>& moments, std::optional<std::int64_t> bound) {
  ClockTable table(bound);
  for (WorkerId id = 0; id < 4; ++id) {
    table.join(id);
  }
  std::int64_t lead = 0;
  for (const Moment& moment : moments) {
    const auto worker = static_cast<WorkerId>(moment.worker);
    if (moment.start > 0) {
      EXPECT_TRUE(table.may_go_on(worker)) << "worker " << worker << " at clock " << table.clock(worker);
      lead = std::max(lead, table.clock(worker) - table.slowest());
    } else {
      table.finish(worker);
    }
  }
  return lead;
}

TEST(AsyncJobTest, SspNeverExceedsItsBoundWithASlowWorker) {
  for (const std::int64_t bound : {0, 1, 3}) {
    JobOptions options = options_for(Sync::kSsp);
    options.async.staleness = bound;
    const std::vector<Moment> moments = moments_of(options, [](int /*iteration*/) {
      std::this_thread::sleep_for(std::chrono::milliseconds(world_rank() == 3 ? 30 : 1));
    });
    EXPECT_GE(moments.size(), 2U * 1000 / kGlobalBatch);
    EXPECT_LE(replay(moments, bound), bound);
  }
}

TEST(AsyncJobTest, AspWaitsForNobody) {
  // The slow worker ends its first iteration when another is at its fifth. There are 62 for the other three.
  constexpr int kFifth = 4;
  constexpr int kSlow = 3;
  const auto hear = [] { MPI_Recv(nullptr, 0, MPI_BYTE, MPI_ANY_SOURCE, kFifth, MPI_COMM_WORLD, MPI_STATUS_IGNORE); };
  const std::vector<Moment> moments = moments_of(options_for(Sync::kAsp), [&](int iteration) {
    if (world_rank() == kSlow && iteration == 0) {
      hear();
    } else if (world_rank() != kSlow && iteration == kFifth) {
      MPI_Send(nullptr, 0, MPI_BYTE, kSlow, kFifth, MPI_COMM_WORLD);
    }
  });
  EXPECT_GE(replay(moments, std::nullopt), kFifth);
  const auto moments_with = [&](int rank) { return std::ranges::count(moments, rank, &Moment::worker); };
  std::int64_t unheard = moments_with(kSlow) > 0 ? -1 : 0;
  for (int rank = 0; rank < kSlow; ++rank) {
    unheard += moments_with(rank) > 2L * kFifth ? 1 : 0;
  }
  for (; world_rank() == kSlow && unheard > 0; --unheard) {
    hear();
  }
}

TEST(AsyncJobTest, EverySampleIsUsedOnceAndAllEndWithTheSameModel) {
  const auto dataset = images(1003);
  auto model = make_model(/*with_norm=*/true);
  auto optimizer = make_optimizer(Rule::kMomentum, model);
  std::vector<std::int64_t> used(3, 0);
  std::int64_t next = 0;
  std::int64_t staleness = 0;
  JobOptions options = options_for(Sync::kAsp, "isochron");
  options.async.rate = {.by_batch = true, .by_staleness = true};
  options.async.momentum_correction = true;
  options.on_update = [&](const UpdateRecord& record) {
    EXPECT_EQ(record.step, next++);
    used[static_cast<std::size_t>(record.epoch)] += record.worker.batch;
    staleness = std::max(staleness, record.staleness);
  };
  Job job(options);
  train(job, model, *optimizer, dataset, 3);
  EXPECT_THAT(used, ::testing::Each(1003));
  EXPECT_EQ(job.next_record(), next);
  EXPECT_GT(staleness, 0);
  EXPECT_TRUE(job.ledger().complete());
  EXPECT_TRUE(same_on_all_ranks(job, model));
  EXPECT_EQ(job.batch_sizes().size(), 4U);
}

TEST(AsyncJobTest, ALoaderThatIsIteratedAgainGivesTheNextEpoch) {
  const auto dataset = images(200);
  auto model = make_model();
  auto optimizer = make_optimizer(Rule::kMomentum, model);
  Job job(options_for(Sync::kAsp));
  job.prepare(*model, *optimizer);
  Loader loader = job.loader(dataset);
  std::vector<std::int64_t> epochs;
  for (const auto epoch : loader.epochs(3)) {
    epochs.push_back(epoch);
    for (const auto& [x, y] : loader) {
      job.backward(loss_of(model, x, y));
      optimizer->step();
      optimizer->zero_grad();
    }
    EXPECT_TRUE(job.ledger().complete());
    ASSERT_LE(epochs.size(), 3U);
  }
  EXPECT_EQ(epochs, (std::vector<std::int64_t>{0, 1, 2}));
}

TEST(AsyncJobTest, MeetsWhereItIsTold) {
  auto model = make_model();
  auto optimizer = make_optimizer(Rule::kAdam, model);
  Job job(options_for(Sync::kAsp));
  job.prepare(*model, *optimizer);
  const auto dataset = images(640);
  for (const std::int64_t step : {3, 7, 10}) {
    job.barrier_at(step);
    for (const auto& [x, y] : job.loader(dataset)) {
      job.backward(loss_of(model, x, y));
    }
    EXPECT_EQ(job.step(), step);
    EXPECT_TRUE(same_on_all_ranks(job, model));
  }
  EXPECT_EQ(job.epoch(), 1);
}

// One worker and three servers: no asynchrony, so that all is known.
JobOptions one_worker() {
  JobOptions options = options_for(Sync::kAsp);
  options.async.servers = 3;
  return options;
}

TEST(AsyncJobTest, DedicatedServersApplyWhatAnOptimizerWould) {
  const auto dataset = images(640);
  for (const Rule rule : {Rule::kMomentum, Rule::kAdam, Rule::kAdamW}) {
    auto expected = make_model();
    auto in_step = make_optimizer(rule, expected);
    {
      Job job(options_for(Sync::kBsp));
      train(job, expected, *in_step, dataset, 2);
    }
    auto model = make_model();
    auto optimizer = make_optimizer(rule, model);
    Job job(one_worker());
    std::int64_t iterations = 0;
    job.prepare(*model, *optimizer);
    for ([[maybe_unused]] const auto epoch : job.epochs(2)) {
      for (const auto& [x, y] : job.loader(dataset)) {
        job.backward(loss_of(model, x, y));
        ++iterations;
      }
    }
    EXPECT_EQ(iterations, world_rank() == 0 ? 20 : 0);
    EXPECT_LT(distance(model, expected), 1e-4) << static_cast<int>(rule);
    EXPECT_TRUE(same_on_all_ranks(job, model));
  }
}

TEST(AsyncJobTest, GoesOnFromACheckpointBitByBit) {
  const auto dataset = images(640);
  const std::filesystem::path file = std::filesystem::path(ISOCHRON_TEST_DATA) / "async.ckpt";
  for (const Rule rule : {Rule::kMomentum, Rule::kAdam}) {
    auto expected = make_model();
    {
      auto optimizer = make_optimizer(rule, expected);
      Job job(one_worker());
      train(job, expected, *optimizer, dataset, 2);
    }
    {
      auto model = make_model();
      auto optimizer = make_optimizer(rule, model);
      Job job(one_worker());
      train(job, model, *optimizer, dataset, 1);
      job.save(file);
    }
    auto model = make_model();
    auto optimizer = make_optimizer(rule, model);
    Job job(one_worker());
    job.prepare(*model, *optimizer);
    job.restore(file);
    EXPECT_EQ(job.epoch(), 1);
    for ([[maybe_unused]] const auto epoch : job.epochs(2)) {
      for (const auto& [x, y] : job.loader(dataset)) {
        job.backward(loss_of(model, x, y));
      }
    }
    EXPECT_EQ(job.next_record(), 20);
    EXPECT_EQ(distance(model, expected), 0.0) << static_cast<int>(rule);
  }
}

TEST(AsyncJobTest, StopsOnAllWorkersWithNothingUnderWay) {
  auto model = make_model();
  auto optimizer = make_optimizer(Rule::kMomentum, model);
  Job job(options_for(Sync::kAsp));
  job.prepare(*model, *optimizer);
  for ([[maybe_unused]] const auto epoch : job.epochs(1'000'000)) {
    for (const auto& [x, y] : job.loader(images(100'000))) {
      if (world_rank() == 2) {
        job.stop();
      }
      job.backward(loss_of(model, x, y));
    }
    break;
  }
  EXPECT_TRUE(job.stopping());
  EXPECT_EQ(job.push_counts().sent, job.push_counts().applied);
  EXPECT_EQ(job.ledger().intervals().size(), 1U);  // no gap
  EXPECT_TRUE(same_on_all_ranks(job, model));
}

TEST(AsyncJobTest, AGradientThatIsNoNumberEndsTheJobOnAllWorkers) {
  auto model = make_model();
  auto optimizer = make_optimizer(Rule::kMomentum, model);
  Job job(options_for(Sync::kAsp));
  job.prepare(*model, *optimizer);
  const auto loop = [&] {
    for (const auto& [x, y] : job.loader(images(100'000))) {
      const double factor = world_rank() == 1 ? std::numeric_limits<double>::quiet_NaN() : 1.0;
      job.backward(loss_of(model, x, y) * factor);
    }
  };
  EXPECT_THROW(
      try { loop(); } catch (const NonFiniteError& error) {
        EXPECT_THAT(error.what(), HasSubstr("-1 for positions"));
        throw;
      },
      NonFiniteError);
}

TEST(AsyncJobTest, RefusesWhatMakesNoSense) {
  const auto refusal = [](const JobOptions& options, const char* words) {
    try {
      Job job(options);
      FAIL() << words;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  };
  JobOptions options = options_for(Sync::kSsp);
  options.async.staleness = -1;
  refusal(options, "staleness is -1; permitted: a whole number from 0 to ");
  options = options_for(Sync::kAsp);
  options.async.servers = 4;
  refusal(options, "servers is 4 in a job of 4 ranks; permitted: fewer");
  options = options_for(Sync::kAsp);
  options.min_batch = 0;
  refusal(options, "permitted: 1 or more");
  options = options_for(Sync::kAsp);
  options.rate.rule = RateRule::kAdaScale;
  refusal(options, "lr_rule is 'adascale' with sync 'asp'; permitted: with sync 'bsp'");
}

}  // namespace
}  // namespace isochron
