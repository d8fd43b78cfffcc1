// Two ranks train on several datasets, one after the other, and leave epochs early. What they must equal is computed by
// one process with plain LibTorch.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/engine/shares.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "isochron/data/sample_stream.h"
#include "isochron/data/synthetic_images.h"
#include "isochron/engine/job.h"

namespace isochron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kDataBatch = 24;
constexpr std::uint64_t kDataSeed = 5;

// 120 samples are five steps; 130 are six, the last of which is short.
std::shared_ptr<data::Dataset> pictures_of(std::int64_t samples, std::uint64_t stream = 0) {
  return data::synthetic_images(
      {.samples = samples,
       .classes = 4,
       .channels = 1,
       .height = 4,
       .width = 4,
       .seed = static_cast<std::uint64_t>(samples),
       .stream = stream});
}

torch::nn::Sequential data_model() {
  torch::manual_seed(3);
  torch::nn::Sequential model(torch::nn::Linear(16, 8), torch::nn::Tanh(), torch::nn::Linear(8, 4));
  model->to(torch::kDouble);
  return model;
}

torch::optim::SGD data_optimizer(torch::nn::Sequential& model) {
  return torch::optim::SGD(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
}

at::Tensor data_loss(torch::nn::Sequential& model, const at::Tensor& x, const at::Tensor& y) {
  return torch::nn::functional::cross_entropy(model->forward(x.flatten(1).to(at::kDouble)), y);
}

JobOptions data_options() {
  return JobOptions{{.global_batch = kDataBatch, .policy = "static:weights=1/3", .seed = kDataSeed}};
}

// A job with its model, made the same way every time.
struct Training {
  explicit Training(const JobOptions& options = data_options())
      : model(data_model()), optimizer(data_optimizer(model)), job(options) {
    job.prepare(*model, optimizer);
  }

  void step(const Batch& batch) {
    job.backward(data_loss(model, batch.data, batch.target));
    optimizer.step();
    optimizer.zero_grad();
  }

  // As far as `steps`; 0: to the end of the epoch.
  void loop(Loader loader, std::int64_t steps = 0) {
    std::int64_t done = 0;
    for (const Batch& batch : loader) {
      step(batch);
      if (++done == steps) {
        break;
      }
    }
    job.finish_step();
  }

  torch::nn::Sequential model;
  torch::optim::SGD optimizer;
  Job job;
};

struct Pass {
  std::shared_ptr<data::Dataset> dataset;
  std::int64_t epoch = 0;
  std::int64_t first = 0;  // step of the epoch
  std::int64_t last = 0;   // behind it
};

// The parameters after these passes in one process.
testing::Tensors train_passes(const std::vector<Pass>& passes) {
  torch::nn::Sequential model = data_model();
  torch::optim::SGD optimizer = data_optimizer(model);
  for (const Pass& pass : passes) {
    const data::Dataset& dataset = *pass.dataset;
    const SamplerOptions order{.dataset_size = dataset.size(), .global_batch = kDataBatch, .seed = kDataSeed};
    const data::SampleStream stream(pass.dataset, order, data::Augment(dataset.shape(), {.seed = kDataSeed}));
    Sampler sampler(order);
    for (std::int64_t step = pass.first; step < pass.last; ++step) {
      sampler.restore({.seed = kDataSeed, .epoch = pass.epoch, .position = step * kDataBatch});
      const Interval all = stream.running(sampler.state(), sampler.slices(std::vector<std::int64_t>{kDataBatch})[0]);
      at::Tensor x = at::empty({all.size(), 1, 4, 4});
      at::Tensor y = at::empty({all.size()}, at::kLong);
      for (std::int64_t i = 0; i < all.size(); ++i) {
        const at::Tensor sample = x[i];
        y[i] = stream.fetch(all.first + i, {static_cast<std::byte*>(sample.mutable_data_ptr()), sample.nbytes()});
      }
      optimizer.zero_grad();
      data_loss(model, x, y).backward();
      optimizer.step();
    }
  }
  return model->parameters();
}

void expect_same(const torch::nn::Sequential& model, const testing::Tensors& reference) {
  const testing::Tensors mine = model->parameters();
  ASSERT_EQ(mine.size(), reference.size());
  for (std::size_t k = 0; k < mine.size(); ++k) {
    EXPECT_LT((mine[k] - reference[k]).abs().max().item<double>(), 1e-10);
  }
}

TEST(DatasetsTest, OneAfterTheOtherTrainLikeOneProcessEachWithItsOwnLedger) {
  const auto before = pictures_of(120);
  const auto after = pictures_of(130);
  Training training;
  std::vector<std::int64_t> epochs;
  for (const auto epoch : training.job.epochs(2)) {
    epochs.push_back(epoch);
    training.loop(training.job.loader(before));
  }
  EXPECT_TRUE(training.job.ledger().complete());
  EXPECT_EQ(training.job.ledger().size(), 120);
  Loader tuning = training.job.loader(after);
  EXPECT_EQ(training.job.epoch(), 0);
  for (const auto epoch : tuning.epochs(1)) {
    epochs.push_back(epoch);
    training.loop(tuning);
  }
  EXPECT_TRUE(training.job.ledger().complete());
  EXPECT_EQ(training.job.ledger().size(), 130);
  EXPECT_EQ(training.job.step(), 16);
  EXPECT_THAT(epochs, ElementsAre(0, 1, 0));
  expect_same(
      training.model,
      train_passes(
          {{.dataset = before, .epoch = 0, .first = 0, .last = 5},
           {.dataset = before, .epoch = 1, .first = 0, .last = 5},
           {.dataset = after, .epoch = 0, .first = 0, .last = 6}}));
}

TEST(DatasetsTest, GoOnWhereTheyWereAlsoFromACheckpoint) {
  const auto one = pictures_of(120);
  const auto other = pictures_of(130);
  const auto path = std::filesystem::temp_directory_path() / "isochron-datasets-test.ckpt";
  {
    Training training;
    Loader first = training.job.loader(one);
    training.loop(first);
    training.loop(training.job.loader(other), 2);
    training.loop(first, 3);  // of its second epoch
    EXPECT_EQ(training.job.epoch(), 1);
    EXPECT_EQ(training.job.ledger().used(), 72);
    training.loop(training.job.loader(other), 1);
    training.job.save(path);
  }
  Training training;
  Loader first = training.job.loader(one);
  training.job.restore(path);  // the other dataset comes later
  EXPECT_EQ(training.job.step(), 11);
  EXPECT_EQ(training.job.epoch(), 1);
  EXPECT_EQ(training.job.ledger().used(), 72);
  Loader second = training.job.loader(other);
  EXPECT_EQ(training.job.ledger().used(), 72);  // three steps
  EXPECT_EQ(*first.epochs(9).begin(), 1);
  training.loop(second);
  EXPECT_TRUE(training.job.ledger().complete());
  training.loop(first);
  EXPECT_TRUE(training.job.ledger().complete());
  EXPECT_EQ(training.job.epoch(), 2);
  EXPECT_EQ(*second.epochs(9).begin(), 1);
  expect_same(
      training.model,
      train_passes(
          {{.dataset = one, .epoch = 0, .first = 0, .last = 5},
           {.dataset = other, .epoch = 0, .first = 0, .last = 2},
           {.dataset = one, .epoch = 1, .first = 0, .last = 3},
           {.dataset = other, .epoch = 0, .first = 2, .last = 6},
           {.dataset = one, .epoch = 1, .first = 3, .last = 5}}));
  training.job.barrier();
  std::filesystem::remove(path);
}

TEST(DatasetsTest, ALoopThatIsLeftEndsItsEpochOnRequest) {
  const auto dataset = pictures_of(120);
  std::vector<std::string> events;
  JobOptions options = data_options();
  options.on_event = [&](const EventRecord& event) { events.push_back(event.event); };
  Training training(options);
  std::vector<std::int64_t> epochs;
  for (const auto epoch : training.job.epochs(3)) {
    epochs.push_back(epoch);
    training.loop(training.job.loader(dataset), 2);
    Loader rest = training.job.loader(dataset);
    (void)rest.begin();  // a batch that is not used
    training.job.end_epoch();
    training.job.end_epoch();  // nothing is left to end
  }
  EXPECT_THAT(epochs, ElementsAre(0, 1, 2));
  EXPECT_THAT(events, ElementsAre("epoch-end", "epoch-end", "epoch-end"));
  training.loop(training.job.loader(dataset), 2);
  training.loop(training.job.loader(dataset));  // goes on where that one stopped
  EXPECT_TRUE(training.job.ledger().complete());
  EXPECT_EQ(training.job.step(), 11);
  expect_same(
      training.model,
      train_passes(
          {{.dataset = dataset, .epoch = 0, .first = 0, .last = 2},
           {.dataset = dataset, .epoch = 1, .first = 0, .last = 2},
           {.dataset = dataset, .epoch = 2, .first = 0, .last = 2},
           {.dataset = dataset, .epoch = 3, .first = 0, .last = 5}}));
}

TEST(DatasetsTest, ANewObjectOfTheSameDataIsTheSameUnlessItsNameIsAnother) {
  Training training;
  for ([[maybe_unused]] const auto epoch : training.job.epochs(2)) {
    training.loop(training.job.loader(pictures_of(120)));
  }
  EXPECT_EQ(training.job.step(), 10);
  EXPECT_EQ(training.job.epoch(), 2);
  Loader named = training.job.loader(pictures_of(120), {.name = "other"});
  for ([[maybe_unused]] const auto epoch : named.epochs(2)) {  // the same loader again
    training.loop(named);
  }
  EXPECT_EQ(training.job.step(), 20);
  EXPECT_EQ(training.job.epoch(), 2);
  EXPECT_THAT(
      [&] { training.job.loader(pictures_of(130), {.name = "other"}); },
      ThrowsMessage<std::invalid_argument>(HasSubstr("permitted: what it was before, 120")));
}

TEST(DatasetsTest, OtherDataOfTheSameKindAndSizeNeedsAName) {
  Training training;
  training.loop(training.job.loader(pictures_of(120)));
  EXPECT_THAT(
      [&] { training.job.loader(pictures_of(120, 1)); },
      ThrowsMessage<std::invalid_argument>(HasSubstr("whose first or last one differs from that of the first")));
  Loader named = training.job.loader(pictures_of(120, 1), {.name = "other"});
  EXPECT_EQ(*named.epochs(1).begin(), 0);
  training.loop(named);
  EXPECT_EQ(training.job.step(), 10);
}

TEST(DatasetsTest, TwoWithinAStepAreRefusedAndSoAreTwoOfLocalRounds) {
  {
    Training training;
    Loader first = training.job.loader(pictures_of(120));
    Loader second = training.job.loader(pictures_of(130));
    const auto batch = first.begin();
    EXPECT_THAT(
        [&] { (void)second.begin(); },
        ThrowsMessage<std::logic_error>(HasSubstr("permitted: one dataset after the other, each in a loop")));
    training.step(*batch);
  }
  JobOptions options = data_options();
  options.sync = Sync::kLocal;
  Training training(options);
  training.job.loader(pictures_of(120));
  EXPECT_THAT(
      [&] { training.job.loader(pictures_of(130)); },
      ThrowsMessage<std::invalid_argument>(HasSubstr("with sync 'local' a job trains on one")));
}

}  // namespace
}  // namespace isochron
