// Four ranks with 5, 9, 17 and 33 of 64 samples must compute what one process computes with all 64.
#include "isochron/engine/data_parallel.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <vector>

#include "tests/ranks/group.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/torch.h>

#include "isochron/comm/mpi_backend.h"

namespace isochron {
namespace {

using testing::world_rank;
using testing::world_size;
using Tensors = std::vector<at::Tensor>;

const std::vector<std::int64_t> kBatches{5, 9, 17, 33};
constexpr std::int64_t kGlobalBatch = 64;

struct Samples {
  at::Tensor inputs;
  at::Tensor targets;
};

// The same on every rank.
Samples global_batch(at::ScalarType type, std::uint64_t step) {
  torch::manual_seed(1000 + step);
  return {torch::randn({kGlobalBatch, 10}, type), torch::randint(0, 4, {kGlobalBatch}, torch::kLong)};
}

Samples my_share(const Samples& all) {
  const auto mine = kBatches.begin() + world_rank();
  const std::int64_t first = std::accumulate(kBatches.begin(), mine, std::int64_t{0});
  return {all.inputs.slice(0, first, first + *mine), all.targets.slice(0, first, first + *mine)};
}

torch::nn::Sequential make_model(std::uint64_t seed, at::ScalarType type) {
  torch::manual_seed(seed);
  torch::nn::Sequential model(
      torch::nn::Linear(10, 40),
      torch::nn::Tanh(),
      torch::nn::Linear(40, 40),
      torch::nn::Tanh(),
      torch::nn::Linear(40, 4));
  model->to(type);
  return model;
}

at::Tensor mean_loss(torch::nn::Sequential& model, const Samples& samples) {
  return torch::nn::functional::cross_entropy(model->forward(samples.inputs), samples.targets);
}

double my_weight() {
  return loss_weight(kBatches[static_cast<std::size_t>(world_rank())], kGlobalBatch, world_size());
}

// Largest difference of any gradient from the single-process one, relative to that one's largest element.
double gradient_error(at::ScalarType type, double weight) {
  auto single = make_model(7, type);
  const Samples all = global_batch(type, 0);
  mean_loss(single, all).backward();

  auto model = make_model(7, type);
  DataParallel parallel(model->parameters(), {}, make_group(make_mpi_backend(MPI_COMM_WORLD)), {.bucket_bytes = 4096});
  parallel.begin_step();
  parallel.backward(mean_loss(model, my_share(all)), weight);

  double worst = 0;
  const auto expected = single->parameters();
  const auto computed = model->parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor off = (computed[i].grad() - expected[i].grad()).abs().max() / expected[i].grad().abs().max();
    worst = std::max(worst, off.item<double>());
  }
  return worst;
}

TEST(DataParallelTest, UnevenBatchesGiveTheSingleProcessGradient) {
  EXPECT_LT(gradient_error(torch::kDouble, my_weight()), 1e-12);
  EXPECT_LT(gradient_error(torch::kFloat, my_weight()), 1e-5);
}

TEST(DataParallelTest, WithoutWeightingTheGradientIsWrong) {
  EXPECT_GT(gradient_error(torch::kDouble, 1.0), 1e-2);
}

// Runs `steps` steps of SGD with momentum; the model starts from another seed on every rank.
torch::nn::Sequential train(int steps, const DataParallelOptions& options) {
  auto model = make_model(static_cast<std::uint64_t>(world_rank()), torch::kFloat);
  DataParallel parallel(model->parameters(), model->buffers(), make_group(make_mpi_backend(MPI_COMM_WORLD)), options);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < steps; ++step) {
    const Samples mine = my_share(global_batch(torch::kFloat, static_cast<std::uint64_t>(step)));
    parallel.begin_step();
    parallel.backward(mean_loss(model, mine), my_weight());
    optimizer.step();
    optimizer.zero_grad();
  }
  return model;
}

TEST(DataParallelTest, ParametersStayBitIdenticalOnAllRanks) {
  for (const std::int64_t bucket_bytes : {std::int64_t{1024}, std::int64_t{25} << 20}) {
    SCOPED_TRACE(bucket_bytes);
    const auto model = train(20, {.bucket_bytes = bucket_bytes});
    for (const at::Tensor& parameter : model->parameters()) {
      const at::Tensor mine = parameter.detach().contiguous();
      const auto bytes = static_cast<int>(mine.nbytes());
      at::Tensor of_rank_0 = mine.clone();
      MPI_Bcast(of_rank_0.data_ptr(), bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
      EXPECT_EQ(std::memcmp(mine.data_ptr(), of_rank_0.data_ptr(), mine.nbytes()), 0);
    }
  }
}

TEST(DataParallelTest, TrainsLikeOneProcess) {
  const auto model = train(20, {});
  auto single = make_model(0, torch::kFloat);  // rank 0's start is everybody's
  torch::optim::SGD optimizer(single->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (std::uint64_t step = 0; step < 20; ++step) {
    mean_loss(single, global_batch(torch::kFloat, step)).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  const auto expected = single->parameters();
  const auto trained = model->parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(torch::allclose(trained[i], expected[i], 1e-4, 1e-5));
  }
}

TEST(DataParallelTest, GivesAllRanksTheBuffersOfRankZero) {
  auto model = make_model(1, torch::kFloat);
  const at::Tensor buffer = torch::full({3}, world_rank());
  const DataParallel parallel(model->parameters(), {buffer}, make_group(make_mpi_backend(MPI_COMM_WORLD)));
  EXPECT_TRUE(buffer.equal(torch::full({3}, 0)));
}

TEST(DataParallelTest, RefusesModelsThatDiffer) {
  const torch::nn::Linear model(torch::nn::LinearOptions(3, 4).bias(world_rank() == 0));
  const auto group = make_group(make_mpi_backend(MPI_COMM_WORLD));
  EXPECT_ANY_THROW(DataParallel(model->parameters(), {}, group));
}

// Reduction and backward overlap: the first bucket is on its way, and even reduced, before the last gradient exists.
TEST(DataParallelTest, ReducesWhileBackwardStillComputes) {
  std::mutex mutex;
  std::vector<OperationTimes> reductions;
  const auto observer = [&](const OperationTimes& times) {
    const std::lock_guard lock(mutex);
    if (times.name.starts_with("allreduce")) {
      reductions.push_back(times);
    }
  };
  torch::nn::Sequential model;
  for (int layer = 0; layer < 12; ++layer) {
    model->push_back(torch::nn::Linear(512, 512));  // 1 MiB each
  }
  DataParallel parallel(
      model->parameters(),
      {},
      make_group(make_mpi_backend(MPI_COMM_WORLD, {.observer = observer})),
      {.bucket_bytes = std::int64_t{1} << 20});
  bool reduced_early = false;
  for (int step = 0; step < 5; ++step) {
    reductions.clear();
    parallel.begin_step();
    const auto times = parallel.backward(model->forward(torch::randn({128, 512})).sum(), 1);
    ASSERT_GE(reductions.size(), 12U);
    EXPECT_LT(times.started, times.last_gradient);
    EXPECT_LT(times.last_gradient, times.finished);
    const auto [first, last] = std::ranges::minmax(reductions, {}, &OperationTimes::submitted);
    EXPECT_LT(first.submitted, times.last_gradient);
    // The bucket that holds the last gradient cannot have left before it.
    EXPECT_GT(last.submitted, times.last_gradient);
    reduced_early = reduced_early || first.finished < times.last_gradient;
  }
  EXPECT_TRUE(reduced_early);
}

TEST(DataParallelTest, NamesTheRankWhoseBackwardIsMissing) {
  auto model = make_model(1, torch::kFloat);
  const auto timeout = world_rank() == 0 ? std::chrono::milliseconds(300) : std::chrono::milliseconds(60'000);
  {
    DataParallel parallel(model->parameters(), {}, make_group(make_mpi_backend(MPI_COMM_WORLD, {.timeout = timeout})));
    parallel.begin_step();
    const at::Tensor loss = mean_loss(model, my_share(global_batch(torch::kFloat, 0)));
    if (world_rank() == 0) {
      try {
        parallel.backward(loss, my_weight());
        ADD_FAILURE() << "rank 3 was not missed";
      } catch (const std::exception& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("waiting for rank 3 on "));
      }
    } else if (world_rank() != 3) {
      EXPECT_ANY_THROW(parallel.backward(loss, my_weight()));
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST(LossWeightTest, AveragesToOneAndRefusesNonsense) {
  double sum = 0;
  for (const std::int64_t batch : kBatches) {
    sum += loss_weight(batch, kGlobalBatch, 4);
  }
  EXPECT_DOUBLE_EQ(sum / 4, 1);
  EXPECT_DOUBLE_EQ(loss_weight(33, 64, 4), 33.0 * 4 / 64);
  EXPECT_DOUBLE_EQ(loss_weight(0, 64, 4), 0);
  EXPECT_THROW(loss_weight(65, 64, 4), std::invalid_argument);
  EXPECT_THROW(loss_weight(-1, 64, 4), std::invalid_argument);
  EXPECT_THROW(loss_weight(0, 0, 4), std::invalid_argument);
  EXPECT_THROW(loss_weight(1, 64, 0), std::invalid_argument);
}

TEST(DataParallelOptionsTest, NamesTheBucketSizeOutOfRange) {
  EXPECT_THROW(DataParallelOptions{.bucket_bytes = 1023}.validate(), std::invalid_argument);
  EXPECT_THROW(DataParallelOptions{.bucket_bytes = (std::int64_t{1} << 30) + 1}.validate(), std::invalid_argument);
}

}  // namespace
}  // namespace isochron
