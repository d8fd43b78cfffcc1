#include "isochron/engine/local/local_model.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>

#include "isochron/engine/optimizer_state.h"

namespace isochron {
namespace {

constexpr std::int64_t kBucketBytes = std::int64_t{32} << 20;  // that are averaged at a time
constexpr std::string_view kOuter = "outer.";                  // in checkpoints

// What changes of parameters of this type are added up in.
at::ScalarType wide(at::ScalarType type) {
  return at::promote_types(type, at::kFloat);
}

}  // namespace

LocalModel::LocalModel(const JobSettings& settings) : TrainedModel(settings), options_(settings.rounds) {
}
LocalModel::~LocalModel() = default;

void LocalModel::prepare(const Models& models, const Optimizers& optimizers, const Group& group, bool in_chunks) {
  if (models.size() > 1 || optimizers.size() > 1) {
    throw std::invalid_argument(
        "prepare() got " + std::to_string(models.size()) + " models and " + std::to_string(optimizers.size()) +
        " optimizers with sync 'local'; permitted: one of each");
  }
  for (const torch::optim::Optimizer* const optimizer : optimizers.all()) {
    (void)optimizer_state(*optimizer);
  }
  TrainedModel::prepare(models, optimizers, group, in_chunks);
  const bool nesterov = options_.outer == Outer::kNesterov && options_.momentum > 0.0;
  outer_ = std::make_unique<torch::optim::SGD>(
      parameters(),
      torch::optim::SGDOptions(options_.outer_rate()).momentum(nesterov ? options_.momentum : 0.0).nesterov(nesterov));
}

void LocalModel::close() {
  outer_.reset();
  statistics_.clear();
  starts_.clear();
  state_.clear();
  TrainedModel::close();
}

void LocalModel::begin_round() {
  const at::NoGradGuard no_grad;
  starts_.clear();
  for (const at::Tensor& parameter : parameters()) {
    starts_.push_back(parameter.detach().clone());
  }
  copy_buffers();
  state_ = optimizer_state(optimizer());
  for (auto& [name, tensor] : state_) {
    tensor = tensor.detach().clone();
  }
  under_way_ = true;
}

void LocalModel::add_gradient(const at::Tensor& loss, double weight) {
  torch::autograd::backward({weight == 1.0 ? loss : loss * weight}, {});
}

bool LocalModel::finite() const {
  const at::NoGradGuard no_grad;
  return std::ranges::all_of(
      parameters(), [](const at::Tensor& parameter) { return parameter.isfinite().all().item<bool>(); });
}

void LocalModel::average(const Group& group, double weight, double items) {
  const at::NoGradGuard no_grad;
  const bool as_it_is = options_.outer == Outer::kAverage && options_.outer_rate() == 1.0;
  if (group->getSize() > 1 || !as_it_is) {
    average_changes(group, weight);
    average_buffers(group, items);
    outer_->step();
    for (at::Tensor& parameter : parameters()) {
      parameter.mutable_grad().reset();  // a view, which zero_grad() refuses
    }
  }
  copy_buffers();
  under_way_ = false;
}

void LocalModel::average_changes(const Group& group, double weight) {
  const std::vector<at::Tensor> trained = parameters();
  std::size_t first = 0;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < trained.size(); ++i) {
    const at::ScalarType type = trained[i].scalar_type();
    if (i > first && (bytes >= kBucketBytes || type != trained[first].scalar_type())) {
      average_some(group, weight, first, i);
      first = i;
      bytes = 0;
    }
    bytes += trained[i].numel() * static_cast<std::int64_t>(c10::elementSize(wide(type)));
  }
  average_some(group, weight, first, trained.size());
}

void LocalModel::average_some(const Group& group, double weight, std::size_t first, std::size_t last) {
  const std::vector<at::Tensor> trained = parameters();
  const at::ScalarType type = wide(trained[first].scalar_type());
  std::vector<at::Tensor> changes;
  std::vector<std::int64_t> sizes;
  for (std::size_t i = first; i < last; ++i) {
    changes.push_back((starts_[i].to(type) - trained[i].to(type)).flatten());
    sizes.push_back(trained[i].numel());
  }
  std::vector<at::Tensor> together{at::cat(changes).mul_(weight)};
  group->allreduce(together)->wait();
  const std::vector<at::Tensor> parts = together.front().split_with_sizes(sizes);
  for (std::size_t i = first; i < last; ++i) {
    const at::Tensor& parameter = trained[i];
    parameter.copy_(starts_[i]);
    parameter.mutable_grad() = parts[i - first].view(parameter.sizes()).to(parameter.scalar_type());
  }
}

void LocalModel::average_buffers(const Group& group, double items) {
  const std::vector<at::Tensor> buffers = model().buffers();
  if (buffers.empty()) {
    return;
  }
  std::vector<at::Tensor> values{at::full({1}, items, at::kDouble)};
  std::vector<std::int64_t> sizes{1};
  for (const at::Tensor& buffer : buffers) {
    values.push_back(buffer.to(at::kCPU, at::kDouble).flatten() * items);
    sizes.push_back(buffer.numel());
  }
  std::vector<at::Tensor> sums{at::cat(values)};
  group->allreduce(sums)->wait();
  const std::vector<at::Tensor> parts = sums.front().split_with_sizes(sizes);
  if (parts.front().item<double>() == 0.0) {
    return;
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const at::Tensor mean = (parts[i + 1] / parts.front()).view(buffers[i].sizes());
    at::Tensor(buffers[i]).copy_(buffers[i].is_floating_point() ? mean : mean.round());
  }
}

void LocalModel::undo() {
  if (std::exchange(under_way_, false)) {
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor> trained = parameters();
    for (std::size_t i = 0; i < trained.size(); ++i) {
      at::Tensor(trained[i]).copy_(starts_[i]);
    }
    restore_optimizer_state(optimizer(), state_);
  }
  TrainedModel::undo();
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < statistics_.size(); ++i) {
    model().buffers()[i].copy_(statistics_[i]);
  }
}

void LocalModel::copy_buffers() {
  statistics_.clear();
  for (const at::Tensor& buffer : model().buffers()) {
    statistics_.push_back(buffer.detach().clone());
  }
}

Checkpoint LocalModel::pack(const State& rest) const {
  Checkpoint checkpoint = TrainedModel::pack(rest);
  for (const auto& [name, tensor] : optimizer_state(*outer_)) {
    checkpoint.tensors.emplace(std::string(kOuter) + name, tensor);
  }
  return checkpoint;
}

State LocalModel::unpack(const Checkpoint& checkpoint, const std::string& name) {
  std::map<std::string, at::Tensor> outer;
  for (const auto& [key, tensor] : checkpoint.tensors) {
    if (key.starts_with(kOuter)) {
      outer.emplace(key.substr(kOuter.size()), tensor);
    }
  }
  State rest = TrainedModel::unpack(checkpoint, name);
  restore_optimizer_state(*outer_, outer);
  copy_buffers();
  return rest;
}

}  // namespace isochron
