// A model that was written in Python and saved with torch.jit: it trains here without Python.
//
//   example_engine_03_torchscript MODEL.pt
#include <iostream>

#include <torch/torch.h>

#include "isochron/data/catalog.h"
#include "isochron/engine/job.h"
#include "isochron/model/model.h"

int main(int count, char** words) {
  if (count != 2) {
    std::cerr << "usage: example_engine_03_torchscript MODEL.pt\n";
    return 2;
  }
  const std::shared_ptr dataset = isochron::data::open_dataset("synthetic", {});
  const auto model = isochron::model::make_model(std::string("script:") + words[1], {});
  torch::optim::AdamW optimizer(model->parameters(), 1e-3);

  isochron::Job job({.global_batch = 500});
  job.prepare(*model, optimizer);
  for ([[maybe_unused]] const auto epoch : job.epochs(1)) {
    for (const auto& [x, y] : job.loader(dataset)) {
      job.backward(torch::nn::functional::cross_entropy(model->forward(x), y));
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  if (job.is_first()) {
    std::cout << "loss after " << job.step() << " steps: " << job.last_step().loss << '\n';
  }
  return job.last_step().loss < 1.0 ? 0 : 1;
}
