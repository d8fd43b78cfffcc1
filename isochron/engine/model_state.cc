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

constexpr const char* kModel = "model";
constexpr const char* kOptimizer = "optimizer";
constexpr const char* kReplica = "replica";  // the text that holds the rest

// What the names of one thing's tensors begin with: "model.", or of several "model-0.", "model-1." and so on.
std::string prefix_of(const std::string& kind, std::size_t place, std::size_t count) {
  return count == 1 ? kind + "." : kind + "-" + std::to_string(place) + ".";
}

// The text that holds how many there are; one needs none.
std::string count_name(const std::string& kind) {
  return kind + "s";
}

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

// Those of every thing, by `tensors_of_one`.
template <class T, class TensorsOf>
void add(Checkpoint& checkpoint, const std::string& kind, const OneOrMore<T>& things, const TensorsOf& tensors_of_one) {
  for (std::size_t i = 0; i < things.size(); ++i) {
    for (const auto& [name, tensor] : tensors_of_one(things[i])) {
      checkpoint.tensors.emplace(prefix_of(kind, i, things.size()) + name, tensor);
    }
  }
  if (things.size() > 1) {
    checkpoint.texts[count_name(kind)] = std::to_string(things.size());
  }
}

void check_count(const Checkpoint& checkpoint, const std::string& name, const std::string& kind, std::size_t here) {
  const auto found = checkpoint.texts.find(count_name(kind));
  const std::string saved = found == checkpoint.texts.end() ? "1" : found->second;
  if (saved != std::to_string(here)) {
    throw Error(
        name + ": the number of " + count_name(kind) + " in the checkpoint is " + saved +
        "; permitted: " + std::to_string(here) + ", as many as were given to prepare()");
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

Checkpoint pack_job(const State& rest, const Models& models, const Optimizers& optimizers) {
  Checkpoint checkpoint;
  checkpoint.texts[kReplica] = rest.serialize();
  add(checkpoint, kModel, models, tensors_of);
  add(checkpoint, kOptimizer, optimizers, optimizer_state);
  return checkpoint;
}

State unpack_job(
    const Checkpoint& checkpoint, const std::string& name, const Models& models, const Optimizers& optimizers) {
  State rest = read_rest(checkpoint, name);
  check_count(checkpoint, name, kModel, models.size());
  check_count(checkpoint, name, kOptimizer, optimizers.size());
  for (std::size_t i = 0; i < models.size(); ++i) {
    fill(models[i], take(checkpoint, prefix_of(kModel, i, models.size())));
  }
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    restore_optimizer_state(optimizers[i], take(checkpoint, prefix_of(kOptimizer, i, optimizers.size())));
  }
  return rest;
}

}  // namespace isochron
