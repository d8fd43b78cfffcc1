#include "isochron/server/served_piece.h"

#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

#include "isochron/core/error.h"
#include "isochron/core/rate/rate.h"

namespace isochron::server {

ServedPiece::ServedPiece(at::Tensor values, std::unique_ptr<torch::optim::Optimizer> optimizer, bool rate_by_staleness)
    : values_(std::move(values)), optimizer_(std::move(optimizer)), rate_by_staleness_(rate_by_staleness) {
}
ServedPiece::ServedPiece(ServedPiece&&) noexcept = default;
ServedPiece::~ServedPiece() = default;

std::int64_t ServedPiece::apply(const Push& push, const at::Tensor& gradient) {
  std::int64_t& next = enter(push.from.worker);
  if (push.from.iteration < next) {
    return -1;
  }
  next = push.from.iteration + 1;
  ++updates_;
  if (push.round_samples > 0) {
    add_to_round(push, gradient);
    return 0;
  }
  const std::int64_t staleness = clocks_.push(push.from.worker);
  const PushRate rule{.by_staleness = rate_by_staleness_};
  step(gradient, push.rate * push_factor(rule, 1, 1, 1, staleness));
  return staleness;
}

void ServedPiece::add_to_round(const Push& push, const at::Tensor& gradient) {
  const std::int64_t samples = push.from.last - push.from.first;
  const double weight = static_cast<double>(samples) / static_cast<double>(push.round_samples);
  if (round_samples_ == 0) {
    round_sum_ = gradient.mul(weight);
  } else {
    round_sum_.add_(gradient, weight);
  }
  round_samples_ += samples;
  round_complete_ = push.round_samples;
  round_rate_ = push.rate;
}

void ServedPiece::finish_rounds(std::int64_t rounds) {
  if (rounds <= rounds_) {
    return;
  }
  ISO_CHECK(
      rounds == rounds_ + 1 && round_samples_ == round_complete_,
      "round " + std::to_string(rounds) + " is to be over, but a piece of the parameters has " +
          std::to_string(rounds_) + " and " + std::to_string(round_samples_) + " of " +
          std::to_string(round_complete_) + " samples of the next");
  step(round_sum_, round_rate_);
  round_samples_ = 0;
  rounds_ = rounds;
}

void ServedPiece::step(const at::Tensor& gradient, double rate) {
  if (values_.storage().use_count() > 1) {
    values_.set_data(values_.clone());
  }
  values_.mutable_grad() = gradient;
  optimizer_->param_groups().front().options().set_lr(rate);
  optimizer_->step();
  values_.mutable_grad().reset();
}

at::Tensor ServedPiece::pull(WorkerId worker, std::int64_t rounds) {
  finish_rounds(rounds);
  enter(worker);
  clocks_.pull(worker);
  return values_.detach();
}

std::int64_t& ServedPiece::enter(WorkerId worker) {
  const auto [next, is_new] = next_.try_emplace(worker, 0);
  if (is_new) {
    clocks_.join(worker);
  }
  return next->second;
}

}  // namespace isochron::server
