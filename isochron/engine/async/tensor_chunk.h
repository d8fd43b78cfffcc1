// A chunk of the parameters as a tensor, and the optimizer that moves it. Values that are on their way to a worker are
// not touched: an update that comes meanwhile moves a copy. Not thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "isochron/server/served_chunk.h"

namespace torch::optim {
class Optimizer;
}

namespace isochron {

class TensorChunk final : public server::ServedChunk {
 public:
  // `optimizer` moves `values`, which is flat and belongs to this from now on.
  TensorChunk(at::Tensor values, std::unique_ptr<torch::optim::Optimizer> optimizer, PushRate rule);
  ~TensorChunk() override;

  [[nodiscard]] std::size_t size() const override { return values_.nbytes(); }
  torch::optim::Optimizer& optimizer() { return *optimizer_; }

 protected:
  server::Values values() override;
  void step(server::Space gradient, double rate, const std::string& settings) override;
  void step_mean(double weight, double rate, const std::string& settings) override;
  void add(server::Space gradient, double weight, bool first) override;

 private:
  void step(const at::Tensor& gradient, double rate);
  at::Tensor tensor_of(server::Space bytes) const;

  at::Tensor values_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  at::Tensor round_sum_;
};

}  // namespace isochron
