#include "isochron/engine/job_state.h"

#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "isochron/core/error.h"
#include "isochron/engine/checkpoint.h"
#include "isochron/engine/job.h"
#include "isochron/engine/optimizer_state.h"

namespace isochron {
namespace {

constexpr std::string_view kModel = "model.";
constexpr std::string_view kOptimizer = "optimizer.";

// The fields of SavedJob that are no State of their own.
struct Description {
  SavedJob& job;

  void exchange(StateExchange& state) {
    state.field("global_batch", job.global_batch);
    state.field("seed", job.seed);
    state.field("last_batch", job.last_batch);
    state.field("policy", job.policy);
    state.field("workers", job.workers);
    state.field("dataset_size", job.dataset_size);
    state.field("epoch", job.sampler.epoch);
    state.field("position", job.sampler.position);
  }
};

void refuse_difference(const char* what, const std::string& saved, const std::string& given) {
  if (saved != given) {
    throw std::invalid_argument(std::string(what) + " is " + given + "; permitted: that of the checkpoint, " + saved);
  }
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

// What the others need to receive a checkpoint: all texts, and element type and sizes of every tensor.
State outline(const Checkpoint& checkpoint) {
  State state;
  state.words.insert(checkpoint.texts.begin(), checkpoint.texts.end());
  for (const auto& [name, tensor] : checkpoint.tensors) {
    std::vector<double> shape{static_cast<double>(tensor.scalar_type())};
    shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
    state.numbers.emplace(name, std::move(shape));
  }
  return state;
}

Checkpoint empty_like(const State& outline) {
  Checkpoint checkpoint;
  checkpoint.texts.insert(outline.words.begin(), outline.words.end());
  for (const auto& [name, shape] : outline.numbers) {
    const std::vector<std::int64_t> sizes(shape.begin() + 1, shape.end());
    checkpoint.tensors.emplace(name, at::empty(sizes, static_cast<at::ScalarType>(shape.front())));
  }
  return checkpoint;
}

Checkpoint send_to_all(const Group& group, Checkpoint checkpoint) {
  const State shape = State::parse(broadcast(group, outline(checkpoint).serialize()));
  if (group->getRank() != 0) {
    checkpoint = empty_like(shape);
  }
  for (auto& [name, tensor] : checkpoint.tensors) {
    if (tensor.numel() > 0) {
      std::vector<at::Tensor> bytes{tensor.view({-1}).view(at::kByte)};
      group->broadcast(bytes)->wait();
    }
  }
  return checkpoint;
}

Checkpoint read_on_rank_0(const std::filesystem::path& path, const Group& group) {
  Checkpoint checkpoint;
  std::string failure;
  if (group->getRank() == 0) {
    try {
      checkpoint = read_checkpoint(path);
    } catch (const Error& error) {
      failure = error.what();
    }
  }
  failure = broadcast(group, failure);
  if (!failure.empty()) {
    throw Error(failure);
  }
  return send_to_all(group, std::move(checkpoint));
}

const std::string& text(const Checkpoint& checkpoint, const std::filesystem::path& path, const std::string& name) {
  const auto found = checkpoint.texts.find(name);
  if (found == checkpoint.texts.end()) {
    throw Error(path.string() + ": a checkpoint without '" + name + "', so not one of a job");
  }
  return found->second;
}

}  // namespace

void SavedJob::check_options(const JobOptions& options) const {
  refuse_difference("global_batch", std::to_string(global_batch), std::to_string(options.global_batch));
  refuse_difference("seed", seed, std::to_string(options.seed));
  refuse_difference("last_batch", last_batch, options.last_batch == LastBatch::kKeep ? "keep" : "drop");
  refuse_difference("policy", policy, options.policy);
}

void SavedJob::check_dataset(std::int64_t size) const {
  if (dataset_size != 0) {
    refuse_difference("the dataset's size", std::to_string(dataset_size), std::to_string(size));
  }
}

void SavedJob::restore(Controller& into, const JobOptions& options) const {
  Roster roster = into.roster();
  if (std::ssize(roster.workers) == workers) {
    into.restore(controller);
    return;
  }
  // Made for the old roster, then told of the new one: the policies know what to do with those who come and go.
  std::vector<Worker> present = std::exchange(roster.workers, {});
  for (std::int64_t k = 0; k < workers; ++k) {
    roster.workers.push_back(k < std::ssize(present) ? present[static_cast<std::size_t>(k)] : Worker{});
    roster.workers.back().id = static_cast<WorkerId>(k);
    roster.workers.back().max_batch = kNoLimit;  // those who are left may not hold all of B between them
  }
  Controller changed(std::move(roster), {.policy = options.policy, .rate = options.rate});
  changed.restore(controller);
  changed.change_workers(std::move(present));
  into = std::move(changed);
}

void save_job(
    const std::filesystem::path& path,
    const SavedJob& job,
    const torch::nn::Module& model,
    const torch::optim::Optimizer& optimizer) {
  Checkpoint checkpoint;
  SavedJob copy = job;
  Description description{copy};
  checkpoint.texts["job"] = save_state(description).serialize();
  checkpoint.texts["ledger"] = job.ledger.serialize();
  checkpoint.texts["controller"] = job.controller.serialize();
  add(checkpoint, kModel, tensors_of(model));
  add(checkpoint, kOptimizer, optimizer_state(optimizer));
  write_checkpoint(path, checkpoint);
}

SavedJob load_job(
    const std::filesystem::path& path,
    const Group& group,
    torch::nn::Module& model,
    torch::optim::Optimizer& optimizer) {
  const Checkpoint checkpoint = read_on_rank_0(path, group);
  SavedJob job;
  Description description{job};
  restore_state(description, State::parse(text(checkpoint, path, "job")));
  job.ledger = State::parse(text(checkpoint, path, "ledger"));
  job.controller = State::parse(text(checkpoint, path, "controller"));
  fill(model, take(checkpoint, kModel));
  restore_optimizer_state(optimizer, take(checkpoint, kOptimizer));
  return job;
}

}  // namespace isochron
