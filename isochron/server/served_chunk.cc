#include "isochron/server/served_chunk.h"

#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

namespace isochron::server {

ServedChunk::ServedChunk(at::Tensor values, std::unique_ptr<torch::optim::Optimizer> optimizer, PushRate rule)
    : values_(std::move(values)), optimizer_(std::move(optimizer)), ledger_(rule) {
}
ServedChunk::ServedChunk(ServedChunk&&) noexcept = default;
ServedChunk::~ServedChunk() = default;

std::int64_t ServedChunk::apply(const PushHeader& push, const at::Tensor& gradient) {
  const ShardLedger::Taken taken = ledger_.take(push);
  if (taken.action == ShardLedger::Action::kApply) {
    step(gradient, taken.rate);
  } else if (taken.action == ShardLedger::Action::kAdd && taken.first) {
    round_sum_ = gradient.mul(taken.weight);
  } else if (taken.action == ShardLedger::Action::kAdd) {
    round_sum_.add_(gradient, taken.weight);
  }
  return taken.staleness;
}

at::Tensor ServedChunk::pull(const PullHeader& pull) {
  step(ledger_.pull(pull));
  return values_.detach();
}

void ServedChunk::finish_rounds(std::int64_t rounds) {
  step(ledger_.finish_rounds(rounds));
}

// Weights of a round are shares of it, which add up to 1.
void ServedChunk::step(const std::optional<ShardLedger::Round>& round) {
  if (round && round->weight > 0.0) {
    step(round_sum_, round->rate);
  }
}

void ServedChunk::step(const at::Tensor& gradient, double rate) {
  if (values_.storage().use_count() > 1) {
    values_.set_data(values_.clone());
  }
  values_.mutable_grad() = gradient;
  optimizer_->param_groups().front().options().set_lr(rate);
  optimizer_->step();
  values_.mutable_grad().reset();
}

}  // namespace isochron::server
