// Three ranks train a small network on synthetic images.
#include "isochron/train/trainer.h"

#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/own_path.h"
#include "tests/ranks/group.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "isochron/data/augment.h"
#include "isochron/data/catalog.h"
#include "isochron/engine/checkpoint.h"
#include "isochron/model/model.h"

namespace isochron::train {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::world_rank;

// The folder is rank 0's; nobody else looks at it.
class TrainerTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] Options small(const std::string& policy = "uniform") const {
    Options options;
    options.job.global_batch = 30;
    options.job.policy = policy;
    options.job.seed = 3;
    options.model = "mlp:hidden=16";
    options.dataset = "synthetic";
    options.train_samples = 100;  // 4 steps an epoch, the last of 10
    options.test_samples = 101;
    options.epochs = 3;
    options.learning_rate = 0.01;
    return options;
  }
  [[nodiscard]] Options saving(const std::string& subfolder) const {
    Options options = small();
    options.checkpoints = folder_ / subfolder;
    return options;
  }
  [[nodiscard]] std::vector<std::string> files(const std::string& subfolder) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ / subfolder)) {
      names.push_back(entry.path().filename());
    }
    std::ranges::sort(names);
    return names;
  }

  const fs::path folder_ = own_path();
};

std::int64_t train(Trainer& trainer, std::int64_t steps) {
  std::int64_t done = 0;
  while (done < steps && trainer.step()) {
    ++done;
  }
  return done;
}

void expect_same_tensors(const fs::path& one, const fs::path& other) {
  const auto first = read_checkpoint(one).tensors;
  const auto second = read_checkpoint(other).tensors;
  ASSERT_EQ(first.size(), second.size());
  for (const auto& [name, tensor] : first) {
    EXPECT_EQ(std::memcmp(tensor.data_ptr(), second.at(name).data_ptr(), tensor.nbytes()), 0) << name;
  }
}

TEST_F(TrainerTest, TrainsToItsEndAndLearns) {
  Options options = small("static:weights=1/2/3");
  options.learning_rate = 0.1;
  Trainer trainer(options);
  EXPECT_EQ(trainer.steps_per_epoch(), 4);
  EXPECT_EQ(trainer.total_steps(), 12);
  ASSERT_TRUE(trainer.step());
  const double first_loss = trainer.job().last_step().loss;
  EXPECT_EQ(train(trainer, 100), 11);
  EXPECT_EQ(trainer.job().step(), 12);
  EXPECT_LT(trainer.job().last_step().loss, 0.5 * first_loss);
  EXPECT_FALSE(trainer.step());
}

TEST_F(TrainerTest, EndsAfterSoManyStepsIfToldSo) {
  Options options = small();
  options.steps = 5;
  Trainer trainer(options);
  EXPECT_EQ(train(trainer, 100), 5);
}

// Against one process that takes the test samples one after the other.
TEST_F(TrainerTest, EvaluatesEveryTestSampleOnce) {
  for (const char* policy : {"uniform", "static:weights=1/2/27"}) {
    Options options = small(policy);
    options.job.micro_batch = world_rank() == 2 ? 7 : 0;
    const Evaluation together = Trainer(options).evaluate();

    torch::manual_seed(options.job.seed);
    const auto model = model::make_model(options.model, {});
    const auto dataset = data::open_dataset("synthetic", {.split = data::Split::kTest});
    const data::Augment augment(dataset->shape(), data::customary_augmentation("synthetic", data::Split::kTest));
    double loss = 0.0;
    int right = 0;
    for (std::int64_t i = 0; i < 101; ++i) {
      std::vector<std::byte> pixels(static_cast<std::size_t>(dataset->shape().bytes()));
      const at::Tensor target = torch::full({1}, dataset->read(i, pixels), torch::kLong);
      const at::Tensor image = torch::empty({1, 1, 28, 28});
      augment.render({}, pixels, {image.data_ptr<float>(), static_cast<std::size_t>(image.numel())});
      const at::Tensor scores = model->forward(image);
      loss += torch::nn::functional::cross_entropy(scores, target).item<double>();
      right += scores.argmax(1).equal(target) ? 1 : 0;
    }
    EXPECT_EQ(together.accuracy, right / 101.0);
    EXPECT_NEAR(together.loss, loss / 101, 1e-5);
  }
}

// After the first step the rate is as good as zero.
TEST_F(TrainerTest, FollowsTheScheduleOfTheLearningRate) {
  Options options = saving("a");
  options.momentum = 0.0;
  options.schedule = Decay::kStep;
  options.step_every = 1;
  options.step_factor = 1e-30;
  options.checkpoint_every = 1;
  options.steps = 3;
  Trainer trainer(options);
  train(trainer, 3);
  if (world_rank() == 0) {
    expect_same_tensors(checkpoint_path(folder_ / "a", 1), checkpoint_path(folder_ / "a", 3));
  }
}

TEST_F(TrainerTest, ResumesBitIdentically) {
  for (const char* optimizer : {"sgd", "adam"}) {
    Options steady = saving("steady");
    steady.optimizer = optimizer;
    steady.steps = 7;
    Trainer uninterrupted(steady);
    train(uninterrupted, 7);

    Options broken = saving("broken");
    broken.optimizer = optimizer;
    broken.steps = 7;
    broken.checkpoint_every = 5;  // in the middle of an epoch
    {
      Trainer first(broken);
      train(first, 6);
    }
    broken.resume = "auto";
    Trainer second(broken);
    EXPECT_EQ(second.job().step(), 5);
    train(second, 100);
    if (world_rank() == 0) {
      expect_same_tensors(checkpoint_path(folder_ / "steady", 7), checkpoint_path(folder_ / "broken", 7));
      fs::remove_all(folder_);
    }
    second.job().barrier();
  }
}

TEST_F(TrainerTest, SavesAtTheEndOfEpochsAndKeepsTheNewest) {
  Options options = saving("a");
  options.keep = 2;
  Trainer trainer(options);
  train(trainer, 100);
  if (world_rank() == 0) {
    EXPECT_THAT(files("a"), ElementsAre("step-000000008.ckpt", "step-000000012.ckpt"));
  }
}

TEST_F(TrainerTest, GoesInRoundsCountsGlobalBatchesAndSavesWhereRoundsEnd) {
  Options options = saving("rounds");
  options.job.sync = Sync::kLocal;
  options.job.rounds.steps = 3;
  options.steps = 11;
  options.checkpoint_every = 4;
  std::vector<std::int64_t> ends;
  {
    Trainer trainer(options);
    while (trainer.step()) {
      ends.push_back(trainer.steps_done());
    }
    EXPECT_TRUE(trainer.job().ledger().duplicates().empty());
    trainer.job().barrier();
  }
  EXPECT_THAT(ends, ElementsAre(3, 4, 7, 8, 11));  // an epoch has 4, and the run 11
  if (world_rank() == 0) {
    EXPECT_THAT(files("rounds"), ElementsAre("step-000000004.ckpt", "step-000000008.ckpt", "step-000000011.ckpt"));
  }
  options.steps = 12;
  options.resume = "auto";
  Trainer trainer(options);
  EXPECT_EQ(trainer.steps_done(), 11);
  EXPECT_TRUE(trainer.step());
  EXPECT_EQ(trainer.steps_done(), 12);
  EXPECT_TRUE(trainer.job().ledger().complete());
  EXPECT_FALSE(trainer.step());
}

TEST_F(TrainerTest, AWorkerWithoutSamplesOfARoundSavesAndEvaluatesWithTheOthers) {
  Options options = saving("short");
  options.train_samples = 61;  // two steps of 30, and one of a sample that one of three workers gets
  options.job.sync = Sync::kLocal;
  options.job.rounds.steps = 2;
  options.epochs = 2;
  std::vector<std::int64_t> ends;
  Trainer trainer(options);
  while (trainer.step()) {
    ends.push_back(trainer.steps_done());
    EXPECT_GT(trainer.evaluate().loss, 0.0);
  }
  EXPECT_THAT(ends, ElementsAre(2, 3, 5, 6));
  EXPECT_TRUE(trainer.job().ledger().complete());
  if (world_rank() == 0) {
    EXPECT_THAT(files("short"), ElementsAre("step-000000003.ckpt", "step-000000006.ckpt"));
  }
  trainer.job().barrier();
}

TEST_F(TrainerTest, StopsEverywhereAtTheSameStepAndSaves) {
  Trainer trainer(saving("a"));
  train(trainer, 1);
  if (world_rank() == 1) {
    trainer.job().stop();
  }
  EXPECT_EQ(train(trainer, 100), 1);
  if (world_rank() == 0) {
    EXPECT_THAT(files("a"), ElementsAre("step-000000002.ckpt"));
  }
}

TEST_F(TrainerTest, MeasuringAloneLeavesTrainingAsItIs) {
  Trainer plain(saving("plain"));
  train(plain, 100);
  Trainer measured(saving("measured"));
  for (int step = 0; measured.step(); ++step) {
    EXPECT_GT(measured.solo_seconds(1 + world_rank() + step % 2), 0.0);
    if (step == 1) {
      const SoloCosts costs = measured.solo_costs();
      EXPECT_GT(costs.prepare_seconds, 0.0);
      EXPECT_GT(costs.update_seconds, 0.0);
      EXPECT_GT(costs.parameter_bytes, 0.0);
    }
  }
  if (world_rank() == 0) {
    expect_same_tensors(checkpoint_path(folder_ / "plain", 12), checkpoint_path(folder_ / "measured", 12));
  }
}

std::string refusal(const Options& options) {
  try {
    const Trainer trainer(options);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST_F(TrainerTest, SaysOnAllRanksWhatItCannotStartFrom) {
  Options options = small();
  options.resume = (folder_ / "none.ckpt").string();
  EXPECT_THAT(refusal(options), HasSubstr("none.ckpt'; permitted: a checkpoint of such a run ("));
  options = small();
  options.checkpoints = "/dev/null/folder";
  EXPECT_THAT(refusal(options), HasSubstr("checkpoints is '/dev/null/folder'; permitted: a folder that can be made"));
  options = small();
  options.dataset = "mnist";
  options.data = folder_;
  EXPECT_THAT(refusal(options), HasSubstr("dataset is 'mnist'; permitted: one whose files are there (cannot read"));
  options = small();
  options.model = "perceptron";
  EXPECT_THAT(refusal(options), HasSubstr("perceptron"));
}

}  // namespace
}  // namespace isochron::train
