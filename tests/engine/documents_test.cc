// Four ranks train GPT-2 on documents of unequal length, dealt by cost; one process with plain LibTorch computes the
// same.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/ranks/group.h"
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "isochron/core/random/random.h"
#include "isochron/core/sample/sampler.h"
#include "isochron/data/tokens.h"
#include "isochron/engine/job.h"
#include "isochron/model/model.h"

namespace isochron {
namespace {

constexpr std::int64_t kGlobalBatch = 24;
constexpr std::int64_t kContext = 20;
constexpr std::int64_t kVocabulary = 30;
constexpr std::uint64_t kSeed = 5;
constexpr double kExact = 1e-10;

// 331 documents of 2 to 21 tokens, short ones more often, in memory.
std::shared_ptr<const data::Dataset> documents() {
  Random random({kSeed});
  std::vector<std::uint16_t> tokens;
  std::vector<std::uint64_t> starts;
  for (int document = 0; document < 331; ++document) {
    starts.push_back(tokens.size());
    const std::uint64_t length = 2 + std::min(random.below(20), random.below(20));
    for (std::uint64_t i = 0; i < length; ++i) {
      tokens.push_back(static_cast<std::uint16_t>(random.below(kVocabulary)));
    }
  }
  const auto bytes = [](const auto& numbers) {
    std::vector<std::byte> copy(sizeof(numbers[0]) * numbers.size());
    std::memcpy(copy.data(), numbers.data(), copy.size());
    return copy;
  };
  return data::read_documents(
      data::in_memory("text.bin", bytes(tokens)),
      *data::in_memory("text.starts", bytes(starts)),
      {.context = kContext, .vocabulary = kVocabulary});
}

std::shared_ptr<model::Model> make_gpt() {
  torch::manual_seed(3);
  auto model =
      model::make_model("gpt2:layers=2,heads=2,width=16,dropout=0", {.context = kContext, .classes = kVocabulary});
  model->to(torch::kDouble);
  return model;
}

torch::optim::SGD make_optimizer(const model::Model& model) {
  return torch::optim::SGD(model.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
}

at::Tensor mean_loss(const at::Tensor& scores, const at::Tensor& target) {
  return at::cross_entropy_loss(scores.flatten(0, -2), target.flatten());
}

// The mean over all tokens of the samples, one after the other.
at::Tensor loss_of_samples(
    model::Model& model, const data::Dataset& dataset, const std::vector<std::int64_t>& samples) {
  std::vector<at::Tensor> losses;
  double tokens = 0.0;
  for (const std::int64_t sample : samples) {
    std::vector<std::uint16_t> stored(kContext + 1);
    dataset.read(sample, std::as_writable_bytes(std::span(stored)));
    const std::int64_t length = dataset.lengths()[static_cast<std::size_t>(sample)];
    const at::Tensor all =
        torch::tensor(std::vector<std::int64_t>(stored.begin(), stored.begin() + length + 1)).unsqueeze(0);
    losses.push_back(
        mean_loss(model.forward(all.narrow(1, 0, length)), all.narrow(1, 1, length)) * static_cast<double>(length));
    tokens += static_cast<double>(length);
  }
  return torch::stack(losses).sum() / tokens;
}

std::vector<double> train_alone(model::Model& model, std::int64_t steps) {
  const auto dataset = documents();
  auto optimizer = make_optimizer(model);
  Sampler sampler({.dataset_size = dataset->size(), .global_batch = kGlobalBatch, .seed = kSeed});
  std::vector<double> losses;
  for (std::int64_t step = 0; step < steps; ++step, sampler.advance()) {
    std::vector<std::int64_t> samples;
    const std::int64_t first = sampler.state().position;
    for (std::int64_t position = first; position < first + sampler.step_size(); ++position) {
      samples.push_back(sampler.sample_at(position));
    }
    optimizer.zero_grad();
    const at::Tensor loss = loss_of_samples(model, *dataset, samples);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

double distance(const model::Model& a, const model::Model& b) {
  double worst = 0.0;
  for (std::size_t i = 0; i < a.parameters().size(); ++i) {
    worst = std::max(worst, (a.parameters()[i] - b.parameters()[i]).abs().max().item<double>());
  }
  return worst;
}

struct Trained {
  std::shared_ptr<model::Model> model = make_gpt();
  std::vector<double> losses;
  std::vector<std::int64_t> batches;  // this worker's, by step
  std::vector<std::int64_t> amounts;  // as decided for the next step
  StepRecord last;
};

// Workers of later ranks take longer for a token.
void train(Trained& run, Job& job, const LoaderOptions& options, std::int64_t steps) {
  auto optimizer = make_optimizer(*run.model);
  job.prepare(*run.model, optimizer);
  const auto dataset = documents();
  while (job.step() < steps) {
    for (const auto& batch : job.loader(dataset, options)) {
      const auto tokens = batch.target.numel();
      std::this_thread::sleep_for(std::chrono::microseconds(20 * tokens * (1 + 2 * job.rank())));
      job.backward(
          batch, [&](const at::Tensor& x, const at::Tensor& y) { return mean_loss(run.model->forward(x), y); });
      optimizer.step();
      optimizer.zero_grad();
      job.finish_step();
      run.losses.push_back(job.last_step().loss);
      run.batches.push_back(job.last_step().workers[static_cast<std::size_t>(job.rank())].batch);
      if (job.step() == steps) {
        break;
      }
    }
  }
  run.amounts = job.batch_sizes();
  run.last = job.last_step();
}

Trained run_job(const LoaderOptions& options, std::int64_t steps, JobSettings settings = {}) {
  settings.global_batch = kGlobalBatch;
  settings.seed = kSeed;
  Trained run;
  Job job(settings);
  train(run, job, options, steps);
  job.close();
  return run;
}

class DocumentsTest : public ::testing::TestWithParam<Collation> {};

INSTANTIATE_TEST_SUITE_P(
    , DocumentsTest, ::testing::Values(Collation::kPacked, Collation::kPadded), [](const auto& one) {
      return std::string(name_of(kCollationNames, one.param));
    });

TEST_P(DocumentsTest, DealtByCostTheyTrainLikeOneProcess) {
  const auto alone = make_gpt();
  const auto start = make_gpt();
  const auto expected = train_alone(*alone, 50);
  const Trained run = run_job({.collation = GetParam()}, 50);
  EXPECT_GT(distance(*alone, *start), 1e6 * kExact);  // else the comparison would say nothing
  EXPECT_LT(distance(*run.model, *alone), kExact);
  ASSERT_EQ(run.losses.size(), expected.size());
  for (std::size_t step = 0; step < expected.size(); ++step) {
    EXPECT_NEAR(run.losses[step], expected[step], kExact) << "step " << step;
  }
  EXPECT_GT(std::ranges::max(run.batches), std::ranges::min(run.batches));  // shares change from step to step
  EXPECT_GT(run.amounts.front(), run.amounts.back());                       // and the faster has more
  double work = 0.0;
  double padding = 0.0;
  for (const WorkerStep& worker : run.last.workers) {
    work += worker.work;
    padding += worker.padding;
  }
  EXPECT_GT(work, 0.0);
  EXPECT_EQ(padding > 0.0, GetParam() == Collation::kPadded);
}

TEST_P(DocumentsTest, WithoutWeightsTheyDoNot) {
  const auto alone = make_gpt();
  train_alone(*alone, 10);
  const Trained run = run_job({.collation = GetParam()}, 10, {.weighting = Weighting::kMean});
  EXPECT_GT(distance(*run.model, *alone), 1e4 * kExact);
}

TEST_P(DocumentsTest, ByCountTheyTrainLikeOneProcess) {
  const auto alone = make_gpt();
  train_alone(*alone, 10);
  const Trained run =
      run_job({.cost = std::nullopt, .collation = GetParam()}, 10, {.policy = "static:weights=1/2/3/6"});
  EXPECT_LT(distance(*run.model, *alone), kExact);
  EXPECT_EQ(run.amounts, (std::vector<std::int64_t>{2, 4, 6, 12}));
}

TEST(DocumentJobTest, PaddedOnesInMicroBatchesTrainLikeOneProcess) {
  const auto alone = make_gpt();
  train_alone(*alone, 10);
  const Trained run = run_job({.collation = Collation::kPadded}, 10, {.micro_batch = 2});
  EXPECT_LT(distance(*run.model, *alone), kExact);
  Job job(JobSettings{.global_batch = kGlobalBatch, .micro_batch = 2});
  auto optimizer = make_optimizer(*run.model);
  job.prepare(*run.model, optimizer);
  EXPECT_THROW(job.loader(documents()), std::invalid_argument);
}

TEST(DocumentJobTest, ACheckpointGoesOnByCost) {
  const auto file = std::filesystem::temp_directory_path() / "isochron-documents-test.checkpoint";
  const auto alone = make_gpt();
  train_alone(*alone, 20);
  Trained run;
  auto optimizer = make_optimizer(*run.model);
  const JobSettings settings{.global_batch = kGlobalBatch, .seed = kSeed};
  const auto dataset = documents();
  const auto loop = [&](Job& job, std::int64_t steps) {
    for (const auto& batch : job.loader(dataset)) {
      job.backward(
          batch, [&](const at::Tensor& x, const at::Tensor& y) { return mean_loss(run.model->forward(x), y); });
      optimizer.step();
      optimizer.zero_grad();
      job.finish_step();
      if (job.step() == steps) {
        break;
      }
    }
  };
  {
    Job job(settings);
    job.prepare(*run.model, optimizer);
    loop(job, 9);
    job.save(file);
  }
  Job job(settings);
  job.prepare(*run.model, optimizer);
  job.restore(file);
  EXPECT_EQ(job.step(), 9);
  while (job.step() < 20) {
    loop(job, 20);
  }
  EXPECT_LT(distance(*run.model, *alone), kExact);
  job.barrier();
  if (job.is_first()) {
    std::filesystem::remove(file);
  }
}

}  // namespace
}  // namespace isochron
