// A GAN on LibTorch, as people write it: two networks, an optimizer for each, and two backward passes a step. The
// generator is judged by the critic's new parameters.
//
//   mpirun -n 4 build/dev/bin/example_engine_04_gan
#include <iostream>
#include <memory>

#include <torch/torch.h>

#include "isochron/data/catalog.h"
#include "isochron/engine/job.h"

namespace {

constexpr std::int64_t kNoise = 32;

torch::optim::AdamOptions rate(double learning_rate) {
  return torch::optim::AdamOptions(learning_rate).betas(std::make_tuple(0.5, 0.999));
}

torch::Tensor against(const torch::Tensor& answers, double truth) {
  return torch::nn::functional::binary_cross_entropy_with_logits(answers, torch::full_like(answers, truth));
}

}  // namespace

int main() {
  const std::shared_ptr dataset = isochron::data::open_dataset("synthetic", {});
  torch::nn::Sequential critic(torch::nn::Linear(784, 128), torch::nn::LeakyReLU(), torch::nn::Linear(128, 1));
  torch::nn::Sequential generator(torch::nn::Linear(kNoise, 128), torch::nn::ReLU(), torch::nn::Linear(128, 784));
  torch::optim::Adam critic_optimizer(critic->parameters(), rate(1e-4));
  torch::optim::Adam generator_optimizer(generator->parameters(), rate(2e-4));

  isochron::Job job({.global_batch = 256});
  job.prepare({*critic, *generator}, {critic_optimizer, generator_optimizer});
  for (const auto epoch : job.epochs(1)) {
    for (const auto& [x, y] : job.loader(dataset)) {
      const torch::Tensor real = x.flatten(1);
      const torch::Tensor fake = generator->forward(torch::randn({real.size(0), kNoise}));

      critic_optimizer.zero_grad();
      job.backward(
          against(critic->forward(real), 1.0) + against(critic->forward(fake.detach()), 0.0), critic_optimizer);
      critic_optimizer.step();

      generator_optimizer.zero_grad();
      job.backward(against(critic->forward(fake), 1.0), generator_optimizer);
      generator_optimizer.step();
    }
    if (job.is_first()) {
      std::cout << "epoch " << epoch << ": losses " << job.last_step().loss << ", batch sizes " << job.batch_sizes()
                << '\n';
    }
  }
}
