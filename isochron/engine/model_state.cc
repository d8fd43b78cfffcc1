#include "isochron/engine/model_state.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/utils.h>

#include "isochron/core/error.h"
#include "isochron/engine/optimizer_state.h"

namespace isochron {
namespace {

constexpr std::string_view kModel = "model.";
constexpr std::string_view kOptimizer = "optimizer.";
constexpr const char* kReplica = "replica";  // the text that holds the rest

// Parameters and buffers by name; the tensors are the model's own.
std::map<std::string, at::Tensor> tensors_of(const torch::nn::Module& model) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& parameter : model.named_parameters()) {
    tensors.emplace(parameter.key(), parameter.value());
  }
  for (const auto& buffer : model.named_buffers()) {
    tensors.emplace(buffer.key(), buffer.value());
  }
  return tensors;
}

void fill(torch::nn::Module& model, const std::map<std::string, at::Tensor>& saved) {
  const auto tensors = tensors_of(model);
  if (tensors.size() != saved.size()) {
    throw Error(
        "the checkpoint holds " + std::to_string(saved.size()) + " tensors of a model, this one has " +
        std::to_string(tensors.size()));
  }
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) {
    const auto found = saved.find(name);
    if (found == saved.end() || found->second.sizes() != tensor.sizes()) {
      throw Error("the checkpoint's model has no tensor '" + name + "' of this model's shape");
    }
    at::Tensor(tensor).copy_(found->second);
  }
}

void add(Checkpoint& checkpoint, std::string_view prefix, const std::map<std::string, at::Tensor>& tensors) {
  for (const auto& [name, tensor] : tensors) {
    checkpoint.tensors.emplace(std::string(prefix) + name, tensor);
  }
}

std::map<std::string, at::Tensor> take(const Checkpoint& checkpoint, std::string_view prefix) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (name.starts_with(prefix)) {
      tensors.emplace(name.substr(prefix.size()), tensor);
    }
  }
  return tensors;
}

State read_rest(const Checkpoint& checkpoint, const std::string& name) {
  const auto found = checkpoint.texts.find(kReplica);
  if (found != checkpoint.texts.end()) {
    return State::parse(found->second);
  }
  if (checkpoint.texts.contains("controller")) {
    throw Error(
        name +
        ": a checkpoint of an earlier version, which described the job in another way; permitted: those of this "
        "version, so let the version that wrote it finish the job, or begin anew");
  }
  throw Error(name + ": a checkpoint without '" + kReplica + "', so not one of a job");
}

}  // namespace

Checkpoint pack_job(const State& rest, const torch::nn::Module& model, const torch::optim::Optimizer& optimizer) {
  Checkpoint checkpoint;
  checkpoint.texts[kReplica] = rest.serialize();
  add(checkpoint, kModel, tensors_of(model));
  add(checkpoint, kOptimizer, optimizer_state(optimizer));
  return checkpoint;
}

State unpack_job(
    const Checkpoint& checkpoint,
    const std::string& name,
    torch::nn::Module& model,
    torch::optim::Optimizer& optimizer) {
  State rest = read_rest(checkpoint, name);
  fill(model, take(checkpoint, kModel));
  restore_optimizer_state(optimizer, take(checkpoint, kOptimizer));
  return rest;
}

}  // namespace isochron
