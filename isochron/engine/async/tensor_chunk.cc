#include "isochron/engine/async/tensor_chunk.h"

#include <utility>

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

namespace isochron {

TensorChunk::TensorChunk(at::Tensor values, std::unique_ptr<torch::optim::Optimizer> optimizer, PushRate rule)
    : ServedChunk(rule), values_(std::move(values)), optimizer_(std::move(optimizer)) {
}

TensorChunk::~TensorChunk() = default;

at::Tensor TensorChunk::tensor_of(server::Space bytes) const {
  return at::from_blob(bytes.data(), {values_.numel()}, values_.options());
}

server::Values TensorChunk::values() {
  const auto held = std::make_shared<at::Tensor>(values_.detach());
  return {.bytes = {static_cast<const std::byte*>(held->const_data_ptr()), held->nbytes()}, .keeper = held};
}

void TensorChunk::add(server::Space gradient, double weight, bool first) {
  if (first) {
    round_sum_ = tensor_of(gradient).mul(weight);
  } else {
    round_sum_.add_(tensor_of(gradient), weight);
  }
}

void TensorChunk::step(server::Space gradient, double rate, const std::string& /*settings*/) {
  step(tensor_of(gradient), rate);
}

// Weights of a round are shares of it, which add up to 1.
void TensorChunk::step_mean(double /*weight*/, double rate, const std::string& /*settings*/) {
  step(round_sum_, rate);
}

void TensorChunk::step(const at::Tensor& gradient, double rate) {
  if (values_.storage().use_count() > 1) {
    values_.set_data(values_.clone());
  }
  values_.mutable_grad() = gradient;
  optimizer_->param_groups().front().options().set_lr(rate);
  optimizer_->step();
  values_.mutable_grad().reset();
}

}  // namespace isochron
