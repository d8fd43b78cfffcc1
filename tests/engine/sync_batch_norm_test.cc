// Four ranks with unequal shares of a batch must normalise, and differentiate, as one process does with all of it.
#include "isochron/engine/sync_batch_norm.h"

#include <optional>
#include <string>

#include "tests/engine/shares.h"
#include <gmock/gmock.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/script.h>

#include "isochron/comm/mpi_backend.h"
#include "isochron/core/error.h"

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
using testing::Split;
using testing::Tensors;
using testing::total;

// Neither of mean 0 nor of variance 1, and the ranks' shares differ.
at::Tensor drifting(const std::vector<std::int64_t>& shape) {
  const auto drift = torch::linspace(-1, 1, shape[0], torch::kDouble);
  return (torch::randn(shape, torch::kDouble) * 2 + 3).transpose(0, -1).add(drift).transpose(0, -1).contiguous();
}

Samples images(at::ScalarType type, std::uint64_t step, const Split& split = kUneven) {
  torch::manual_seed(1000 + step);
  const std::int64_t count = total(split);
  return {drifting({count, 3, 6, 5}).to(type), torch::randint(0, 4, {count}, torch::kLong)};
}

torch::nn::Sequential make_model(at::ScalarType type) {
  torch::manual_seed(7);
  torch::nn::Sequential model(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).bias(false)),
      torch::nn::BatchNorm2d(8),
      torch::nn::ReLU(),
      torch::nn::BatchNorm2d(8),
      torch::nn::Flatten(),
      torch::nn::Linear(8 * 4 * 3, 4));
  // At their defaults, 1 and 0, the first layer's weights would have no gradient: the second undoes any scale.
  const torch::NoGradGuard no_grad;
  for (const at::Tensor& parameter : model->parameters()) {
    if (parameter.dim() == 1) {
      parameter.uniform_(0.5, 1.5);
    }
  }
  model->to(type);
  return model;
}

// Every other rank computes on a GPU where there is one, so that such a machine tests a mixed job.
torch::Device my_device() {
  const bool on_gpu = torch::cuda::is_available() && testing::world_rank() % 2 == 1;
  at::globalContext().setAllowTF32CuDNN(false);  // else convolutions in float keep 10 bits
  return {on_gpu ? torch::kCUDA : torch::kCPU};
}

// A worker: a model, its optimizer and the exchange of gradients and of statistics.
struct Worker {
  Worker(torch::nn::Sequential its_model, torch::Device its_device)
      : model(on(its_device, std::move(its_model))), device(its_device) {}

  // Before anything hooks its parameters, which another device would undo.
  static torch::nn::Sequential on(torch::Device device, torch::nn::Sequential model) {
    model->to(device);
    return model;
  }

  // One step on this rank's share; returns the loss. Without samples a stand-in takes their place.
  at::Tensor train(const Samples& all, const Split& split, bool synchronise = true) {
    const bool counts = my_batch(split) > 0;
    const Samples mine = counts ? my_share(all, split) : all.slice(0, 1);
    optimizer.zero_grad();
    parallel.begin_step();
    at::Tensor loss;
    {
      std::optional<SyncBatchNorm::Scope> scope;
      if (synchronise) {
        scope.emplace(norm, counts);
      }
      loss = torch::nn::functional::cross_entropy(model->forward(mine.inputs.to(device)), mine.targets.to(device));
    }
    parallel.backward(loss, my_weight(split));
    optimizer.step();
    return loss.detach() * my_weight(split);
  }

  torch::nn::Sequential model;
  torch::Device device;
  c10::intrusive_ptr<c10d::ProcessGroup> group = make_group(make_mpi_backend(MPI_COMM_WORLD));
  SyncBatchNorm norm{group};
  DataParallel parallel{model->parameters(), model->buffers(), group};
  torch::optim::SGD optimizer{model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)};
};

double mean_of_ranks(const at::Tensor& value, c10d::ProcessGroup& group) {
  std::vector<at::Tensor> sum{value.to(torch::kCPU, torch::kDouble)};
  group.allreduce(sum)->wait();
  return sum[0].item<double>() / testing::world_size();
}

// Largest relative difference from one process over a few steps, of gradients, running statistics and losses.
double error(at::ScalarType type, const Split& split, bool synchronise) {
  Worker worker(make_model(type), my_device());
  auto single = make_model(type);
  torch::optim::SGD optimizer(single->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  double worst = 0;
  for (std::uint64_t step = 0; step < 4; ++step) {
    const Samples all = images(type, step, split);
    optimizer.zero_grad();
    const at::Tensor expected = torch::nn::functional::cross_entropy(single->forward(all.inputs), all.targets);
    expected.backward();
    optimizer.step();
    const double loss = mean_of_ranks(worker.train(all, split, synchronise), *worker.group);
    worst = std::max(
        {worst,
         relative_error(gradients(worker.model->parameters()), gradients(single->parameters())),
         relative_error(worker.model->buffers(), single->buffers()),
         std::abs(loss / expected.item<double>() - 1)});
  }
  return worst;
}

TEST(SyncBatchNormTest, TrainsLikeOneProcess) {
  EXPECT_LT(error(torch::kDouble, kUneven, true), 1e-12);
  EXPECT_LT(error(torch::kFloat, kUneven, true), 1e-5);
}

TEST(SyncBatchNormTest, WithoutItTheGradientIsWrong) {
  EXPECT_GT(error(torch::kDouble, kUneven, false), 1e-2);
}

TEST(SyncBatchNormTest, AStandInCountsForNothing) {
  EXPECT_LT(error(torch::kDouble, {5, 0, 17, 1}, true), 1e-12);
}

TEST(SyncBatchNormTest, AllRanksStayBitIdentical) {
  Worker worker(make_model(torch::kFloat), torch::kCPU);
  for (std::uint64_t step = 0; step < 100; ++step) {
    worker.train(images(torch::kFloat, step), kUneven);
  }
  expect_same_bits_everywhere(worker.model->parameters());
  expect_same_bits_everywhere(worker.model->buffers());
}

// Gradient of the input, then gradients of parameters and running statistics, after three passes of a layer for the
// loss sum((y * factors)^2).
struct Outcome {
  at::Tensor output;
  at::Tensor by_input;
  Tensors by_parameters;
  Tensors buffers;
};
template <typename Layer>
Outcome run(Layer& layer, const at::Tensor& input, const at::Tensor& factors) {
  const at::Tensor x = input.detach().clone().requires_grad_();
  at::Tensor y;
  for (int pass = 0; pass < 3; ++pass) {
    y = layer->forward(x);
    (y * factors).square().sum().backward();
  }
  return {y.detach(), x.grad(), gradients(layer->parameters()), layer->buffers()};
}

// A layer's `twin` on this rank's rows of the input must do what `whole` does with all of them.
template <typename Whole, typename Twin>
void expect_agreement(Whole& whole, Twin& twin, const at::Tensor& input, double tolerance) {
  const auto mine = [](const at::Tensor& all) { return all.narrow(0, testing::my_first(kUneven), my_batch(kUneven)); };
  const at::Tensor factors = torch::rand_like(input);
  const Outcome expected = run(whole, input, factors);
  const torch::Device device = my_device();
  twin->to(device);

  const SyncBatchNorm norm(make_group(make_mpi_backend(MPI_COMM_WORLD)));
  const SyncBatchNorm::Scope scope(norm, true);
  Outcome outcome = run(twin, mine(input).to(device), mine(factors).to(device));
  for (at::Tensor& gradient : outcome.by_parameters) {  // the whole's is the sum of the ranks'
    gradient = gradient.cpu().to(torch::kDouble);
    const auto count = static_cast<int>(gradient.numel());
    MPI_Allreduce(MPI_IN_PLACE, gradient.data_ptr(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }
  EXPECT_LT(
      relative_error({outcome.output, outcome.by_input}, {mine(expected.output), mine(expected.by_input)}), tolerance);
  EXPECT_LT(relative_error(outcome.by_parameters, expected.by_parameters), tolerance);
  EXPECT_LT(relative_error(outcome.buffers, expected.buffers), tolerance);
}

template <typename Layer>
void expect_agreement(const torch::nn::BatchNormOptions& options, const at::Tensor& input, double tolerance = 1e-12) {
  Layer whole(options);
  Layer twin(options);
  const torch::NoGradGuard no_grad;
  for (auto* layer : {&whole, &twin}) {
    (*layer)->to(input.scalar_type());
    for (const at::Tensor& parameter : (*layer)->parameters()) {
      parameter.copy_(torch::linspace(0.5, 2, parameter.numel()));
    }
  }
  const torch::AutoGradMode with_grad(true);
  expect_agreement(whole, twin, input, tolerance);
}

TEST(SyncBatchNormTest, NormalisesEveryShapeAndKindOfLayer) {
  using torch::nn::BatchNorm1d;
  using torch::nn::BatchNorm2d;
  using torch::nn::BatchNorm3d;
  using Options = torch::nn::BatchNormOptions;
  torch::manual_seed(3);
  expect_agreement<BatchNorm1d>(Options(6), drifting({64, 6}));
  expect_agreement<BatchNorm1d>(Options(6).affine(false), drifting({64, 6, 7}));
  expect_agreement<BatchNorm2d>(Options(6).track_running_stats(false), drifting({64, 6, 4, 3}));
  expect_agreement<BatchNorm2d>(Options(6).momentum(std::nullopt), drifting({64, 6, 4, 3}));
  expect_agreement<BatchNorm2d>(
      Options(6).affine(false).track_running_stats(false),
      drifting({64, 6, 4, 3}).contiguous(at::MemoryFormat::ChannelsLast));
  expect_agreement<BatchNorm3d>(Options(6).momentum(0.3).eps(1e-2), drifting({64, 6, 2, 3, 2}));
  expect_agreement<BatchNorm2d>(Options(6), drifting({64, 6, 4, 3}).to(torch::kFloat), 1e-5);
  // Both round every element of output and gradient to 8 bits, from slightly different numbers.
  expect_agreement<BatchNorm2d>(Options(6), drifting({64, 6, 4, 3}).to(torch::kBFloat16), 3 * 0x1p-8);
}

// A TorchScript module that looks like a layer.
class Script {
 public:
  explicit Script(std::int64_t channels) {
    module_.register_parameter("weight", torch::linspace(0.5, 2, channels, torch::kDouble), /*is_buffer=*/false);
    module_.register_parameter("bias", torch::linspace(0.5, 2, channels, torch::kDouble), /*is_buffer=*/false);
    module_.register_buffer("mean", torch::zeros({channels}, torch::kDouble));
    module_.register_buffer("var", torch::ones({channels}, torch::kDouble));
    module_.define(R"(
      def forward(self, x):
        y = torch.batch_norm(x, self.weight, self.bias, self.mean, self.var, True, 0.1, 1e-5, False)
        return torch.relu(y) * y
    )");
    for (const at::Tensor& parameter : parameters()) {
      parameter.requires_grad_();
    }
  }

  Script* operator->() { return this; }
  void to(torch::Device device) { module_.to(device); }
  at::Tensor forward(const at::Tensor& input) { return module_.forward({input}).toTensor(); }
  Tensors parameters() const { return listed(module_.parameters()); }
  Tensors buffers() const { return listed(module_.buffers()); }

 private:
  template <typename List>
  static Tensors listed(const List& list) {
    Tensors result;
    for (const at::Tensor& tensor : list) {
      result.push_back(tensor);
    }
    return result;
  }

  torch::jit::Module module_{"script"};
};

TEST(SyncBatchNormTest, NormalisesInTorchScriptOrSaysWhyItCannot) {
  Script whole(6);
  Script twin(6);
  torch::manual_seed(4);
  const at::Tensor input = drifting({64, 6, 4, 3}).requires_grad_();
  expect_agreement(whole, twin, input, 1e-12);
  // The whole was optimised meanwhile.
  const SyncBatchNorm norm(make_group(make_mpi_backend(MPI_COMM_WORLD)));
  const SyncBatchNorm::Scope scope(norm, true);
  EXPECT_THROW(whole.forward(input), Error);
}

TEST(SyncBatchNormTest, LeavesAloneWhatIsNotItsBusiness) {
  int operations = 0;
  const MpiBackendOptions counting{.observer = [&](const OperationTimes&) { ++operations; }};
  const at::Tensor input = drifting({64, 6, 4, 3}).requires_grad_();
  torch::nn::BatchNorm2d plain(6);
  torch::nn::BatchNorm2d layer(6);
  plain->to(torch::kDouble);
  layer->to(torch::kDouble);
  {  // a world of one
    const SyncBatchNorm norm(make_group(make_mpi_backend(MPI_COMM_SELF, counting)));
    const SyncBatchNorm::Scope scope(norm, true);
    EXPECT_TRUE(layer->forward(input).equal(plain->forward(input)));
  }
  {  // evaluation, and the time after a scope
    const SyncBatchNorm norm(make_group(make_mpi_backend(MPI_COMM_WORLD, counting)));
    {
      const SyncBatchNorm::Scope scope(norm, true);
    }
    EXPECT_TRUE(layer->forward(input).equal(plain->forward(input)));
    layer->eval();
    plain->eval();
    const SyncBatchNorm::Scope scope(norm, true);
    EXPECT_TRUE(layer->forward(input).equal(plain->forward(input)));
  }
  EXPECT_EQ(operations, 0);
}

TEST(SyncBatchNormTest, TellsOnceHowLongAndHowOftenItWaited) {
  SyncBatchNorm norm(make_group(make_mpi_backend(MPI_COMM_WORLD)));
  torch::nn::BatchNorm1d layer(6);
  EXPECT_EQ(norm.take_waits().time.count(), 0);
  at::Tensor output;
  {
    const SyncBatchNorm::Scope scope(norm, true);
    output = layer->forward(torch::randn({4, 6}, torch::requires_grad()));
  }
  EXPECT_GT(norm.take_waits().time.count(), 0);
  output.sum().backward();
  const SyncBatchNorm::Waits waits = norm.take_waits();
  EXPECT_GT(waits.time.count(), 0);
  EXPECT_EQ(waits.count, 1);
  EXPECT_EQ(norm.take_waits().time.count(), 0);
  EXPECT_EQ(norm.take_waits().count, 0);
}

TEST(SyncBatchNormTest, RefusesWhatItCannotDo) {
  const SyncBatchNorm norm(make_group(make_mpi_backend(MPI_COMM_WORLD)));
  const SyncBatchNorm::Scope scope(norm, true);
  torch::nn::BatchNorm1d layer(6);
  EXPECT_THROW(layer->forward(torch::randn({4, 5})), std::invalid_argument);
  const at::Tensor input = torch::randn({4, 6}, torch::requires_grad());
  const at::Tensor loss = layer->forward(input).square().sum();
  EXPECT_THROW(torch::autograd::grad({loss}, {input}, {}, std::nullopt, /*create_graph=*/true), std::invalid_argument);
  const SyncBatchNorm::Scope nobody(norm, false);
  EXPECT_THROW(layer->forward(input), std::invalid_argument);
}

}  // namespace
}  // namespace isochron
