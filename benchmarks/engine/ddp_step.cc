// engine_ddp_step MODEL GLOBAL_BATCH STEPS exact|local: the time of a training step with images of 3 x 32 x 32 on the
// ranks it is started on, in equal shares; BatchNorm is exact over all ranks or local to each, as in PyTorch's DDP.
// Rank 0 prints one JSON object.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "isochron/data/dataset.h"
#include "isochron/engine/job.h"
#include "isochron/model/model.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kWarmUp = 5;

// Costs next to nothing to read: the benchmark is of the step.
class PlainImages : public isochron::data::Dataset {
 public:
  explicit PlainImages(std::int64_t size) : size_(size) {}

  std::int64_t size() const override { return size_; }
  const isochron::data::SampleShape& shape() const override { return shape_; }
  std::int64_t classes() const override { return 10; }
  std::int64_t read(std::int64_t index, std::span<std::byte> out) const override {
    std::ranges::fill(out, static_cast<std::byte>(index));
    return index % classes();
  }

 private:
  const std::int64_t size_;
  const isochron::data::SampleShape shape_{.sizes = {3, 32, 32}};
};

// Seconds from step to step: data, forward, backward, optimizer and the decision on the next one.
std::vector<double> time_steps(isochron::model::Model& model, isochron::Job& job, std::int64_t samples) {
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  job.prepare(model, optimizer);
  std::vector<double> times;
  auto last = Clock::now();
  for (const auto& [images, labels] : job.loader(std::make_shared<PlainImages>(samples))) {
    job.backward(torch::nn::functional::cross_entropy(model.forward(images), labels));
    optimizer.step();
    optimizer.zero_grad();
    const auto now = Clock::now();
    times.push_back(std::chrono::duration<double>(now - last).count());
    last = now;
  }
  job.close();
  return {times.begin() + kWarmUp, times.end()};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: engine_ddp_step MODEL GLOBAL_BATCH STEPS exact|local\n");
    return 2;
  }
  torch::set_num_threads(1);
  const std::int64_t global_batch = std::stoll(argv[2]);
  const std::int64_t steps = kWarmUp + std::stoll(argv[3]);
  const bool exact = std::string(argv[4]) == "exact";
  const auto model = isochron::model::make_model(argv[1], {.channels = 3, .height = 32, .width = 32});
  isochron::Job job({.global_batch = global_batch, .policy = "uniform", .sync_batch_norm = exact});
  const auto times = time_steps(*model, job, global_batch * steps);
  if (job.is_first()) {
    std::int64_t parameters = 0;
    for (const at::Tensor& parameter : model->parameters()) {
      parameters += parameter.numel();
    }
    std::printf(R"({"parameters": %lld, "seconds": [)", static_cast<long long>(parameters));
    for (std::size_t i = 0; i < times.size(); ++i) {
      std::printf("%s%.6f", i == 0 ? "" : ", ", times[i]);
    }
    std::printf("]}\n");
  }
}
