#include "isochron/engine/trained_model.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <set>
#include <stdexcept>
#include <utility>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "isochron/engine/model_state.h"
#include "isochron/engine/optimizer_state.h"

namespace isochron {
namespace {

constexpr const char* kOwed = "compression.owed";  // in checkpoints

// Each once, though models may share some.
std::vector<at::Tensor> without_repetition(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> once;
  std::set<const c10::TensorImpl*> seen;
  for (const at::Tensor& tensor : tensors) {
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) {
      once.push_back(tensor);
    }
  }
  return once;
}

template <class TensorsOf>
std::vector<at::Tensor> of_all(const Models& models, const TensorsOf& tensors_of_one) {
  std::vector<at::Tensor> tensors;
  for (const torch::nn::Module* const model : models.all()) {
    const std::vector<at::Tensor> more = tensors_of_one(*model);
    tensors.insert(tensors.end(), more.begin(), more.end());
  }
  return without_repetition(tensors);
}

std::vector<at::Tensor> model_parameters(const Models& models) {
  return of_all(models, [](const torch::nn::Module& model) { return model.parameters(); });
}

std::vector<at::Tensor> model_buffers(const Models& models) {
  return of_all(models, [](const torch::nn::Module& model) { return model.buffers(); });
}

std::vector<at::Tensor> trained(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> trained;
  std::ranges::copy_if(
      parameters, std::back_inserter(trained), [](const at::Tensor& parameter) { return parameter.requires_grad(); });
  return trained;
}

std::string name_of_statistics(const Models& models) {
  for (const torch::nn::Module* const model : models.all()) {
    for (const auto& buffer : model->named_buffers()) {
      if (buffer.key().ends_with("running_mean")) {
        return buffer.key();
      }
    }
  }
  return {};
}

template <class T>
void check_list(const OneOrMore<T>& things, const std::string& kind) {
  const std::set<const T*> different(things.all().begin(), things.all().end());
  if (things.empty() || different.size() != things.size()) {
    throw std::invalid_argument(
        "prepare() with " + std::to_string(things.size()) + " " + kind + "s, of which " +
        std::to_string(different.size()) + " differ; permitted: one or more, each once");
  }
}

// Gradients of others would not be averaged, and checkpoints would not have them.
void check_parameters(const Models& models, const Optimizers& optimizers) {
  std::set<const c10::TensorImpl*> known;
  for (const at::Tensor& parameter : model_parameters(models)) {
    known.insert(parameter.unsafeGetTensorImpl());
  }
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    for (const at::Tensor& parameter : parameters_of(optimizers[i])) {
      if (!known.contains(parameter.unsafeGetTensorImpl())) {
        throw std::invalid_argument(
            "prepare(): optimizer " + std::to_string(i) + " has a parameter of shape " + c10::str(parameter.sizes()) +
            " that no model has; permitted: parameters of the models that are given with it");
      }
    }
  }
}

DataParallelOptions gradient_options(const JobSettings& settings) {
  DataParallelOptions gradients = settings.gradients;
  gradients.measure_moments = settings.rate.rule == RateRule::kAdaScale;
  return gradients;
}

}  // namespace

TrainedModel::TrainedModel(const JobSettings& settings)
    : gradients_(gradient_options(settings)),
      sync_batch_norm_(settings.sync_batch_norm && settings.sync != Sync::kLocal),
      precision_(settings.precision),
      in_rounds_(settings.sync == Sync::kLocal) {
}

void TrainedModel::prepare(const Models& models, const Optimizers& optimizers, const Group& group, bool in_chunks) {
  check_list(models, "model");
  check_list(optimizers, "optimizer");
  check_parameters(models, optimizers);
  statistics_ = name_of_statistics(models);
  if (in_chunks && !can_be_chunked()) {
    throw std::invalid_argument(
        "micro_batch is set for a model with BatchNorm ('" + statistics_ +
        "'); permitted: 0, with max_batch as the memory ceiling, since statistics need the whole batch at once");
  }
  broadcast_model(trained(model_parameters(models)), model_buffers(models), group, gradients_);
  models_ = models;
  optimizers_ = optimizers;
  for (torch::optim::Optimizer* const optimizer : optimizers_.all()) {
    rates_.emplace_back(*optimizer);
    copies_.emplace_back(*optimizer);
  }
  buffers_.emplace(model_buffers(models));
  if (gradients_.compression == Compression::kInt8) {
    feedback_ = std::make_shared<ErrorFeedback>(parameters(), group->getSize());
  }
  build(group);
}

// With several optimizers it is not known yet what the passes will be for.
void TrainedModel::build(const Group& group) {
  group_ = group;
  norms_.emplace(group, on_wait_);
  if (feedback_) {
    feedback_->follow(group->getSize());
  }
  if (optimizers_.size() == 1 && !in_rounds_) {
    parallel_ = &parallel_of({});
  }
}

DataParallel& TrainedModel::parallel_of(const Places& places) {
  return parallels_
      .try_emplace(
          places, trained_parameters(places), std::vector<at::Tensor>{}, group_, gradients_, Start::kAsIs, feedback_)
      .first->second;
}

std::vector<at::Tensor> TrainedModel::trained_parameters(const Places& places) const {
  if (places.empty()) {
    return trained(model_parameters(models_));
  }
  std::vector<at::Tensor> parameters;
  for (const std::size_t place : places) {
    const std::vector<at::Tensor> more = parameters_of(optimizers_[place]);
    parameters.insert(parameters.end(), more.begin(), more.end());
  }
  return trained(without_repetition(parameters));
}

TrainedModel::Places TrainedModel::places_of(const Optimizers& optimizers) const {
  std::set<std::size_t> places;
  for (const torch::optim::Optimizer* const optimizer : optimizers.all()) {
    const auto found = std::ranges::find(optimizers_.all(), optimizer);
    if (found == optimizers_.all().end()) {
      throw std::invalid_argument(
          "backward() for an optimizer that the job does not know; permitted: those that were given to prepare()");
    }
    places.insert(static_cast<std::size_t>(found - optimizers_.all().begin()));
  }
  return {places.begin(), places.end()};
}

std::vector<at::Tensor> TrainedModel::parameters() const {
  return trained_parameters({});
}

void TrainedModel::enter_group(const Group& group) {
  if (prepared()) {
    build(group);
  }
}

void TrainedModel::leave_group() {
  end_step();
  parallel_ = nullptr;
  parallels_.clear();
  norms_.reset();
  group_.reset();
}

void TrainedModel::close() {
  leave_group();
  rates_.clear();
  copies_.clear();
  buffers_.reset();
  feedback_.reset();
  models_ = {};
  optimizers_ = {};
}

void TrainedModel::begin_step() {
  for (auto& [places, parallel] : parallels_) {
    parallel.begin_step();
  }
  buffers_->take();
  if (feedback_) {
    feedback_->remember();
  }
}

void TrainedModel::begin_forward(double learning_rate_factor, bool counts, bool all_count) {
  for (LearningRate& rate : rates_) {
    rate.apply(learning_rate_factor);
  }
  if (sync_batch_norm_) {
    norm_scope_.emplace(*norms_, counts, all_count);
  }
  norms_->take_waits();
  begin_autocast();
}

void TrainedModel::begin_autocast() {
  autocast_.emplace(precision_, models_[0].parameters().front().device().type());
}

void TrainedModel::begin_pass(const BackwardPass& pass) {
  places_ = places_of(pass.optimizers);
  only_own_ = !pass.is_last();
  retain_graph_ = pass.retain_graph;
  parallel_ = &parallel_of(places_);
  if (!pass.is_last()) {
    parallel_->begin_step();  // it may be the second one for these in the step
  }
}

BackwardResult TrainedModel::backward(
    const at::Tensor& loss, double weight, const std::function<void()>& at_last_gradient) {
  norms_->rethrow_failure();
  autocast_.reset();
  std::exception_ptr failure;  // autograd cannot take it
  const auto report = [&](const BackwardResult& /*result*/) {
    try {
      at_last_gradient();
    } catch (...) {
      failure = std::current_exception();
    }
  };
  const BackwardResult result =
      parallel_->backward(loss, weight, report, {.only_own = only_own_, .retain_graph = retain_graph_});
  if (places_.empty()) {
    norm_scope_.reset();
  }
  norms_->rethrow_failure();
  if (failure) {
    std::rethrow_exception(failure);
  }
  for (const std::size_t place : places_) {
    copies_[place].take();
  }
  if (!places_.empty()) {
    begin_autocast();  // for the forward pass of the next one
  }
  return result;
}

void TrainedModel::end_step() {
  norm_scope_.reset();
  autocast_.reset();
  for (LearningRate& rate : rates_) {
    rate.restore();
  }
  for (OptimizerCopies& copies : copies_) {
    copies.forget();
  }
}

void TrainedModel::undo() {
  buffers_->restore();
  if (feedback_) {
    feedback_->undo();
  }
  for (OptimizerCopies& copies : copies_) {
    copies.restore();
  }
  for (const at::Tensor& parameter : model_parameters(models_)) {
    at::Tensor(parameter).mutable_grad().reset();  // some may be half reduced
  }
  end_step();
}

Checkpoint TrainedModel::pack(const State& rest) const {
  return pack_job(rest, models_, optimizers_);
}

Checkpoint TrainedModel::pack_before_step(const State& rest) const {
  Checkpoint checkpoint = pack(rest);
  for (auto& [name, tensor] : checkpoint.tensors) {
    tensor = buffers_->before(tensor);
  }
  return checkpoint;
}

State TrainedModel::unpack(const Checkpoint& checkpoint, const std::string& name) {
  State rest = unpack_job(checkpoint, name, models_, optimizers_);
  rates_.clear();  // what was restored is the user's own rate
  for (torch::optim::Optimizer* const optimizer : optimizers_.all()) {
    rates_.emplace_back(*optimizer);
  }
  buffers_->take();
  return rest;
}

std::map<std::string, at::Tensor> TrainedModel::gather_owed() const {
  std::map<std::string, at::Tensor> owed;
  if (feedback_) {
    owed.emplace(kOwed, feedback_->mean(group_));
  }
  return owed;
}

void TrainedModel::take_owed(const std::map<std::string, at::Tensor>& tensors) {
  if (feedback_) {
    const auto found = tensors.find(kOwed);
    feedback_->restore(found == tensors.end() ? at::Tensor() : found->second);
  }
}

}  // namespace isochron
