#include "isochron/engine/trained_model.h"

#include <exception>
#include <stdexcept>
#include <vector>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "isochron/engine/model_state.h"

namespace isochron {
namespace {

std::vector<at::Tensor> trained_parameters(const torch::nn::Module& model) {
  std::vector<at::Tensor> trained;
  for (const at::Tensor& parameter : model.parameters()) {
    if (parameter.requires_grad()) {
      trained.push_back(parameter);
    }
  }
  return trained;
}

std::string name_of_statistics(const torch::nn::Module& model) {
  for (const auto& buffer : model.named_buffers()) {
    if (buffer.key().ends_with("running_mean")) {
      return buffer.key();
    }
  }
  return {};
}

DataParallelOptions gradient_options(const JobSettings& settings) {
  DataParallelOptions gradients = settings.gradients;
  gradients.measure_moments = settings.rate.rule == RateRule::kAdaScale;
  return gradients;
}

}  // namespace

TrainedModel::TrainedModel(const JobSettings& settings)
    : gradients_(gradient_options(settings)),
      sync_batch_norm_(settings.sync_batch_norm),
      precision_(settings.precision) {
}

void TrainedModel::prepare(
    torch::nn::Module& model, torch::optim::Optimizer& optimizer, const Group& group, bool in_chunks) {
  statistics_ = name_of_statistics(model);
  if (in_chunks && !can_be_chunked()) {
    throw std::invalid_argument(
        "micro_batch is set for a model with BatchNorm ('" + statistics_ +
        "'); permitted: 0, with max_batch as the memory ceiling, since statistics need the whole batch at once");
  }
  model_ = &model;
  optimizer_ = &optimizer;
  rate_.emplace(optimizer);
  buffers_.emplace(model.buffers());
  build(group, Start::kBroadcast);
}

void TrainedModel::build(const Group& group, Start start) {
  norms_.emplace(group);
  parallel_.emplace(trained_parameters(*model_), model_->buffers(), group, gradients_, start);
}

void TrainedModel::enter_group(const Group& group) {
  if (prepared()) {
    build(group, Start::kAsIs);
  }
}

void TrainedModel::leave_group() {
  end_step();
  norm_scope_.reset();
  autocast_.reset();
  parallel_.reset();
  norms_.reset();
}

void TrainedModel::close() {
  leave_group();
  rate_.reset();
  buffers_.reset();
  model_ = nullptr;
  optimizer_ = nullptr;
}

void TrainedModel::begin_step() {
  parallel_->begin_step();
  buffers_->take();
}

void TrainedModel::begin_forward(double learning_rate_factor, bool counts, bool all_count) {
  rate_->apply(learning_rate_factor);
  if (sync_batch_norm_) {
    norm_scope_.emplace(*norms_, counts, all_count);
  }
  norms_->take_waits();
  autocast_.emplace(precision_, model_->parameters().front().device().type());
}

BackwardResult TrainedModel::backward(
    const at::Tensor& loss, double weight, const std::function<void()>& at_last_gradient) {
  norms_->rethrow_failure();
  autocast_.reset();
  std::exception_ptr failure;  // autograd cannot take it
  const BackwardResult result = parallel_->backward(loss, weight, [&](const BackwardResult& /*result*/) {
    try {
      at_last_gradient();
    } catch (...) {
      failure = std::current_exception();
    }
  });
  norm_scope_.reset();
  norms_->rethrow_failure();
  if (failure) {
    std::rethrow_exception(failure);
  }
  return result;
}

void TrainedModel::end_step() {
  if (rate_) {
    rate_->restore();
  }
}

void TrainedModel::undo() {
  buffers_->restore();
  for (const at::Tensor& parameter : model_->parameters()) {
    at::Tensor(parameter).mutable_grad().reset();  // some may be half reduced
  }
  norm_scope_.reset();
  autocast_.reset();
  end_step();
}

Checkpoint TrainedModel::pack(const State& rest) const {
  return pack_job(rest, *model_, *optimizer_);
}

State TrainedModel::unpack(const Checkpoint& checkpoint, const std::string& name) {
  State rest = unpack_job(checkpoint, name, *model_, *optimizer_);
  rate_.emplace(*optimizer_);  // what was restored is the user's own rate
  return rest;
}

}  // namespace isochron
