// Four ranks with 5, 9, 17 and 33 of 64 samples must compute what one process computes with all 64.
#include "isochron/engine/data_parallel.h"

#include <cmath>
#include <mutex>
#include <string>
#include <vector>

#include "tests/engine/shares.h"
#include <gmock/gmock.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "isochron/comm/mpi_backend.h"

namespace isochron {
namespace {

using testing::expect_same_bits_everywhere;
using testing::gradients;
using testing::kUneven;
using testing::my_batch;
using testing::my_share;
using testing::my_weight;
using testing::relative_error;
using testing::Samples;
using testing::Tensors;
using testing::world_rank;
using testing::world_size;

// The same on every rank.
Samples global_batch(at::ScalarType type, std::uint64_t step) {
  torch::manual_seed(1000 + step);
  const std::int64_t count = testing::total(kUneven);
  return {torch::randn({count, 10}, type), torch::randint(0, 4, {count}, torch::kLong)};
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

// One behind the other.
Tensors in_one(const Tensors& tensors) {
  Tensors parts;
  for (const at::Tensor& tensor : tensors) {
    parts.push_back(tensor.flatten());
  }
  return {at::cat(parts)};
}

// The distance from the gradients of one process with all samples.
double gradient_error(at::ScalarType type, double weight, Compression compression = Compression::kNone) {
  auto single = make_model(7, type);
  const Samples all = global_batch(type, 0);
  mean_loss(single, all).backward();

  auto model = make_model(7, type);
  DataParallel parallel(
      model->parameters(),
      {},
      make_group(make_mpi_backend(MPI_COMM_WORLD)),
      {.bucket_bytes = 4096, .compression = compression});
  parallel.begin_step();
  parallel.backward(mean_loss(model, my_share(all)), weight);
  const Tensors averages = gradients(model->parameters());
  const Tensors expected = gradients(single->parameters());
  // A block of int8 may hold several tensors, and its largest number be much larger than those of one of them.
  return compression == Compression::kInt8 ? relative_error(in_one(averages), in_one(expected))
                                           : relative_error(averages, expected);
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
    expect_same_bits_everywhere(model->parameters());
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
    // The last bucket leaves when the last gradient is there.
    EXPECT_LT(last.submitted, times.last_gradient);
    reduced_early = reduced_early || first.finished < last.submitted;
  }
  EXPECT_TRUE(reduced_early);
}

// The last rank starts its backward pass only when all others have told it, from the callback, that theirs is done.
void expect_to_be_called_before_waiting(Compression compression) {
  auto model = make_model(1, torch::kFloat);
  DataParallel parallel(
      model->parameters(),
      {},
      make_group(make_mpi_backend(MPI_COMM_WORLD)),
      {.bucket_bytes = 4096, .compression = compression});
  const int last = world_size() - 1;
  for (std::uint64_t step = 0; step < 3; ++step) {
    parallel.begin_step();
    const at::Tensor loss = mean_loss(model, my_share(global_batch(torch::kFloat, step)));
    for (int rank = 0; world_rank() == last && rank < last; ++rank) {
      MPI_Recv(nullptr, 0, MPI_BYTE, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    BackwardResult seen;
    const BackwardResult result = parallel.backward(loss, my_weight(), [&](const BackwardResult& so_far) {
      seen = so_far;
      if (world_rank() != last) {
        MPI_Send(nullptr, 0, MPI_BYTE, last, 0, MPI_COMM_WORLD);
      }
    });
    EXPECT_EQ(seen.last_gradient, result.last_gradient);
    EXPECT_LT(result.started, result.last_gradient);
    EXPECT_LT(result.last_gradient, result.finished);
  }
}

TEST(DataParallelTest, CallsBackBeforeItWaitsForTheOthers) {
  for (const Compression compression : {Compression::kNone, Compression::kBf16, Compression::kInt8}) {
    SCOPED_TRACE(name_of(kCompressionNames, compression));
    expect_to_be_called_before_waiting(compression);
  }
}

double square_of_gradients(const torch::nn::Sequential& model) {
  double sum = 0;
  for (const at::Tensor& gradient : gradients(model->parameters())) {
    sum += gradient.square().sum().item<double>();
  }
  return sum;
}

// Pieces of up to four samples: 2, 3, 5 and 9 of them.
TEST(DataParallelTest, AccumulatesMicroBatchesExactlyAndMeasuresTheirMoments) {
  auto model = make_model(7, torch::kDouble);
  DataParallel parallel(
      model->parameters(),
      {},
      make_group(make_mpi_backend(MPI_COMM_WORLD)),
      {.bucket_bytes = 4096, .measure_moments = true});
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Samples all = global_batch(torch::kDouble, step);
    const Samples mine = my_share(all);
    auto single = make_model(7, torch::kDouble);
    mean_loss(single, mine).backward();
    const double local_square = square_of_gradients(single);
    single->zero_grad();
    mean_loss(single, all).backward();

    model->zero_grad();
    parallel.begin_step();
    BackwardResult result;
    constexpr std::int64_t kPiece = 4;
    for (std::int64_t first = 0; first < my_batch(kUneven); first += kPiece) {
      const std::int64_t count = std::min(kPiece, my_batch(kUneven) - first);
      const at::Tensor loss = mean_loss(model, mine.slice(first, count));
      const double weight = loss_weight(count, 64, world_size());
      if (first + count < my_batch(kUneven)) {
        parallel.accumulate(loss, weight);
      } else {
        result = parallel.backward(loss, weight);
      }
    }
    EXPECT_LT(relative_error(gradients(model->parameters()), gradients(single->parameters())), 1e-12);
    EXPECT_NEAR(result.local_square / local_square, 1, 1e-12);
    EXPECT_NEAR(result.global_square / square_of_gradients(single), 1, 1e-12);
  }
}

TEST(DataParallelTest, CompressesGradientsOnTheWire) {
  std::mutex mutex;
  std::vector<std::string> names;
  const auto observer = [&](const OperationTimes& times) {
    const std::lock_guard lock(mutex);
    names.push_back(times.name);
  };
  const Samples all = global_batch(torch::kFloat, 0);
  auto single = make_model(7, torch::kFloat);
  mean_loss(single, all).backward();
  auto model = make_model(7, torch::kFloat);
  DataParallel parallel(
      model->parameters(),
      {},
      make_group(make_mpi_backend(MPI_COMM_WORLD, {.observer = observer})),
      {.compression = Compression::kBf16, .measure_moments = true});
  names.clear();
  parallel.begin_step();
  const BackwardResult result = parallel.backward(mean_loss(model, my_share(all)), my_weight());
  // 10 x 40 + 40, 40 x 40 + 40 and 40 x 4 + 4 parameters in one bucket
  EXPECT_THAT(names, ::testing::ElementsAre("allreduce of 2244 x BFloat16"));
  expect_same_bits_everywhere(gradients(model->parameters()));
  // Four terms and three sums are each rounded to 8 bits; terms may be a few times larger than their mean.
  const double error = relative_error(gradients(model->parameters()), gradients(single->parameters()));
  EXPECT_LT(error, 7 * 0x1p-8);
  EXPECT_GT(error, 1e-5);
  EXPECT_NEAR(result.global_square / square_of_gradients(model), 1, 1e-5);
}

// The bytes that a rank sends to others for one average of 512 x 512 numbers: in an all-to-all their shares, in an
// all-gather its own to each, in an all-reduce as few as that can do with.
std::int64_t bytes_sent(Compression compression) {
  std::mutex mutex;
  std::int64_t bytes = 0;
  const auto observer = [&](const OperationTimes& times) {
    const std::lock_guard lock(mutex);
    const std::string& name = times.name;  // "alltoall of 1024 x Byte"
    const std::int64_t others = world_size() - 1;
    const auto count = [&] { return std::stoll(name.substr(name.find(" of ") + 4)); };
    if (name.starts_with("alltoall")) {
      bytes += count() / world_size() * others;
    } else if (name.starts_with("allgather") && name.ends_with("Byte")) {
      bytes += count() * others;
    } else if (name.starts_with("allreduce")) {
      bytes += 2 * count() / world_size() * others * (name.ends_with("BFloat16") ? 2 : 4);
    }
  };
  torch::nn::Linear model(torch::nn::LinearOptions(512, 512).bias(false));
  DataParallel parallel(
      model->parameters(),
      {},
      make_group(make_mpi_backend(MPI_COMM_WORLD, {.observer = observer})),
      {.compression = compression});
  parallel.begin_step();
  parallel.backward(model->forward(torch::ones({2, 512})).sum(), 1);
  return bytes;
}

// A scale of four bytes for 256 numbers comes on top of their bytes.
TEST(DataParallelTest, Int8MovesAQuarterOfTheBytesOfFloatAndHalfOfThoseOfBf16) {
  const std::int64_t exact = bytes_sent(Compression::kNone);
  EXPECT_EQ(exact, 2 * 4 * 512 * 512 / 4 * 3);
  EXPECT_EQ(bytes_sent(Compression::kBf16), exact / 2);
  EXPECT_EQ(bytes_sent(Compression::kInt8), exact / 4 * (256 + 4) / 256);
}

// Off by half a step of 1 / 127 of the mean of the workers' largest numbers, and by half a one of their mean: 0.02
// leaves room for shares whose largest numbers are on average four times those of all samples.
TEST(DataParallelTest, Int8GivesTheGradientOfUnevenBatchesButForItsRounding) {
  EXPECT_LT(gradient_error(torch::kFloat, my_weight(), Compression::kInt8), 0.02);
  EXPECT_GT(gradient_error(torch::kFloat, 1.0, Compression::kInt8), 0.05);
}

TEST(DataParallelTest, WithInt8AllTrainAlikeAndLikeOneProcessButForItsRounding) {
  const auto model = train(40, {.bucket_bytes = 4096, .compression = Compression::kInt8});
  expect_same_bits_everywhere(model->parameters());
  const auto exact = train(40, {});
  const auto start = make_model(0, torch::kFloat);
  double off = 0.0;
  double moved = 0.0;
  for (std::size_t i = 0; i < start->parameters().size(); ++i) {
    const at::Tensor expected = exact->parameters()[i];
    off += (model->parameters()[i] - expected).square().sum().item<double>();
    moved += (expected - start->parameters()[i]).square().sum().item<double>();
  }
  EXPECT_GT(off, 0.0);
  EXPECT_LT(std::sqrt(off / moved), 0.02);
}

TEST(DataParallelTest, NamesTheRankWhoseBackwardIsMissing) {
  auto model = make_model(1, torch::kFloat);
  const auto timeout = world_rank() == 0 ? std::chrono::milliseconds(3000) : std::chrono::milliseconds(60'000);
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

}  // namespace
}  // namespace isochron
