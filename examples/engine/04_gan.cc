// A GAN on LibTorch: two networks in one module, a rate for each, and one backward pass for the losses of both. The
// critic is frozen while it judges for the generator, so that neither loss reaches the other's parameters.
//
//   mpirun -n 4 build/dev/bin/example_engine_04_gan
#include <iostream>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "isochron/data/catalog.h"
#include "isochron/engine/job.h"

namespace {

constexpr std::int64_t kNoise = 32;

struct Gan : torch::nn::Module {
  torch::nn::Sequential generator = register_module(
      "generator",
      torch::nn::Sequential(torch::nn::Linear(kNoise, 128), torch::nn::ReLU(), torch::nn::Linear(128, 784)));
  torch::nn::Sequential critic = register_module(
      "critic", torch::nn::Sequential(torch::nn::Linear(784, 128), torch::nn::LeakyReLU(), torch::nn::Linear(128, 1)));
};

std::unique_ptr<torch::optim::AdamOptions> rate(double learning_rate) {
  return std::make_unique<torch::optim::AdamOptions>(
      torch::optim::AdamOptions(learning_rate).betas(std::make_tuple(0.5, 0.999)));
}

torch::Tensor against(const torch::Tensor& answers, double truth) {
  return torch::nn::functional::binary_cross_entropy_with_logits(answers, torch::full_like(answers, truth));
}

void train_critic(Gan& gan, bool on) {
  for (torch::Tensor& parameter : gan.critic->parameters()) {
    parameter.requires_grad_(on);
  }
}

}  // namespace

int main() {
  const std::shared_ptr dataset = isochron::data::open_dataset("synthetic", {});
  Gan gan;
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(gan.generator->parameters(), rate(2e-4));
  groups.emplace_back(gan.critic->parameters(), rate(1e-4));
  torch::optim::Adam optimizer(groups, *rate(1e-4));

  isochron::Job job({.global_batch = 256});
  job.prepare(gan, optimizer);
  for (const auto epoch : job.epochs(1)) {
    for (const auto& [x, y] : job.loader(dataset)) {
      const torch::Tensor real = x.flatten(1);
      const torch::Tensor fake = gan.generator->forward(torch::randn({real.size(0), kNoise}));
      const torch::Tensor of_critic =
          against(gan.critic->forward(real), 1.0) + against(gan.critic->forward(fake.detach()), 0.0);
      train_critic(gan, false);
      const torch::Tensor of_generator = against(gan.critic->forward(fake), 1.0);
      train_critic(gan, true);
      job.backward(of_critic + of_generator);  // one pass for both, each a mean over my samples
      optimizer.step();
      optimizer.zero_grad();
    }
    if (job.is_first()) {
      std::cout << "epoch " << epoch << ": loss " << job.last_step().loss << ", batch sizes " << job.batch_sizes()
                << '\n';
    }
  }
}
