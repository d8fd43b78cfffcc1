// A training loop on LibTorch: three calls of the job make it run on any number of unequal workers.
//
//   mpirun -n 4 build/dev/bin/example_engine_01_train
#include <iostream>

#include <torch/torch.h>

#include "isochron/data/catalog.h"
#include "isochron/engine/job.h"

int main() {
  const std::shared_ptr dataset = isochron::data::open_dataset("synthetic", {});
  torch::nn::Sequential model(
      torch::nn::Conv2d(1, 8, 3),
      torch::nn::BatchNorm2d(8),
      torch::nn::ReLU(),
      torch::nn::MaxPool2d(4),
      torch::nn::Flatten(),
      torch::nn::Linear(288, 10));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));

  isochron::Job job({.global_batch = 256});  // joins mpirun or srun; alone it is a world of one
  job.prepare(*model, optimizer);
  for (const auto epoch : job.epochs(1)) {
    for (const auto& [x, y] : job.loader(dataset)) {                                 // my share of every global batch
      const auto loss = torch::nn::functional::cross_entropy(model->forward(x), y);  // mean over my samples
      job.backward(loss);
      optimizer.step();
      optimizer.zero_grad();
    }
    if (job.is_first()) {
      std::cout << "epoch " << epoch << ": loss " << job.last_step().loss << ", batch sizes " << job.batch_sizes()
                << '\n';
    }
  }
}
