// A dataset of your own: say how many samples there are, what they look like, and fill in one of them.
#include <bit>
#include <iostream>

#include <torch/torch.h>

#include "isochron/engine/job.h"

namespace {

// Eight bits; the label is whether an odd number of them is set.
class Parity : public isochron::data::Dataset {
 public:
  std::int64_t size() const override { return 256; }
  const isochron::data::SampleShape& shape() const override { return shape_; }
  std::int64_t classes() const override { return 2; }

  // Called from several threads at once, so it must not change anything.
  std::int64_t read(std::int64_t index, std::span<std::byte> out) const override {
    check_read(index, out);
    for (std::size_t bit = 0; bit < out.size(); ++bit) {
      out[bit] = std::byte{(index >> bit & 1) != 0 ? std::uint8_t{255} : std::uint8_t{0}};
    }
    return std::popcount(static_cast<std::uint64_t>(index)) % 2;
  }

 private:
  isochron::data::SampleShape shape_{.element = isochron::data::Element::kUint8, .sizes = {8}};
};

}  // namespace

int main() {
  torch::nn::Sequential model(torch::nn::Linear(8, 64), torch::nn::ReLU(), torch::nn::Linear(64, 2));
  torch::optim::Adam optimizer(model->parameters(), 0.01);

  isochron::Job job({.global_batch = 64});
  job.prepare(*model, optimizer);
  const auto dataset = std::make_shared<Parity>();
  for ([[maybe_unused]] const auto epoch : job.epochs(100)) {
    for (const auto& [x, y] : job.loader(dataset)) {
      job.backward(torch::nn::functional::cross_entropy(model->forward(x), y));
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  if (job.is_first()) {
    std::cout << "loss after " << job.step() << " steps: " << job.last_step().loss << '\n';
  }
  return job.last_step().loss < 0.3 ? 0 : 1;
}
