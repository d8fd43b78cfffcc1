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
#include "isochron/engine/job.h"
#include "isochron/engine/optimizer_state.h"
#include "isochron/engine/standing.h"

namespace isochron {
namespace {

constexpr std::string_view kModel = "model.";
constexpr std::string_view kOptimizer = "optimizer.";
constexpr int kTransferTag = 11;

// The fields of SavedJob that are no State of their own.
class Description {
 public:
  explicit Description(SavedJob& job) : job_(job) {}

  void exchange(StateExchange& state) {
    state.field("global_batch", job_.global_batch);
    state.field("seed", job_.seed);
    state.field("last_batch", job_.last_batch);
    state.field("policy", job_.policy);
    state.field("record", job_.record);
    exchange_roster(state);
    state.field("next_id", job_.next_id);
    state.field("dataset_size", job_.dataset_size);
    state.field("epoch", job_.sampler.epoch);
    state.field("position", job_.sampler.position);
  }

 private:
  void exchange_roster(StateExchange& state) {
    std::vector<WorkerState> described;
    described.reserve(job_.roster.size());
    for (Worker& worker : job_.roster) {
      described.push_back({std::move(worker)});
    }
    state.parts("roster", described);
    job_.roster.clear();
    for (WorkerState& one : described) {
      job_.roster.push_back(std::move(one.worker));
    }
  }

  SavedJob& job_;
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

// All tensors of a checkpoint one after the other, as they travel.
at::Tensor flat_bytes(const Checkpoint& checkpoint) {
  std::vector<at::Tensor> parts{at::empty({0}, at::kByte)};
  for (const auto& [name, tensor] : checkpoint.tensors) {
    parts.push_back(tensor.detach().cpu().contiguous().view({-1}).view(at::kByte));
  }
  return at::cat(parts);
}

void fill_from(const at::Tensor& flat, Checkpoint& checkpoint) {
  std::int64_t first = 0;
  for (auto& [name, tensor] : checkpoint.tensors) {
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    if (bytes > 0) {
      tensor.view({-1}).view(at::kByte).copy_(flat.narrow(0, first, bytes));
    }
    first += bytes;
  }
}

std::int64_t total_bytes(const Checkpoint& checkpoint) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    bytes += static_cast<std::int64_t>(tensor.nbytes());
  }
  return bytes;
}

Checkpoint send_to_all(const Group& group, const Checkpoint& checkpoint) {
  const State shape = State::parse(broadcast(group, outline(checkpoint).serialize()));
  Checkpoint copy = empty_like(shape);
  std::vector<at::Tensor> flat{
      group->getRank() == 0 ? flat_bytes(checkpoint) : at::empty({total_bytes(copy)}, at::kByte)};
  if (flat.front().numel() > 0) {
    group->broadcast(flat)->wait();
  }
  fill_from(flat.front(), copy);
  return copy;
}

const std::string& text(const Checkpoint& checkpoint, const std::string& whose, const std::string& name) {
  const auto found = checkpoint.texts.find(name);
  if (found == checkpoint.texts.end()) {
    throw Error(whose + ": a checkpoint without '" + name + "', so not one of a job");
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

Controller SavedJob::restored_controller(const JobOptions& options) const {
  Controller then(
      {.workers = roster, .global_batch = options.global_batch}, {.policy = options.policy, .rate = options.rate});
  then.restore(controller);
  return then;
}

void SavedJob::give_ids(std::vector<Worker>& workers, WorkerId& next) const {
  next = next_id;
  for (std::size_t k = 0; k < workers.size(); ++k) {
    workers[k].id = k < roster.size() ? roster[k].id : next++;
  }
}

Checkpoint pack(SavedJob job, const torch::nn::Module& model, const torch::optim::Optimizer& optimizer) {
  Checkpoint checkpoint;
  Description description(job);
  checkpoint.texts["job"] = save_state(description).serialize();
  checkpoint.texts["ledger"] = job.ledger.serialize();
  checkpoint.texts["controller"] = job.controller.serialize();
  checkpoint.texts["ceilings"] = job.ceilings.serialize();
  add(checkpoint, kModel, tensors_of(model));
  add(checkpoint, kOptimizer, optimizer_state(optimizer));
  return checkpoint;
}

SavedJob unpack(
    const Checkpoint& checkpoint,
    const std::string& name,
    torch::nn::Module& model,
    torch::optim::Optimizer& optimizer) {
  SavedJob job;
  Description description(job);
  restore_state(description, State::parse(text(checkpoint, name, "job")));
  job.ledger = State::parse(text(checkpoint, name, "ledger"));
  job.controller = State::parse(text(checkpoint, name, "controller"));
  job.ceilings = State::parse(text(checkpoint, name, "ceilings"));
  fill(model, take(checkpoint, kModel));
  restore_optimizer_state(optimizer, take(checkpoint, kOptimizer));
  return job;
}

Checkpoint read_everywhere(const std::filesystem::path& path, const Group& group) {
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
  return send_to_all(group, checkpoint);
}

void send_checkpoint(const Group& group, const Checkpoint& checkpoint, int to) {
  send_text(group, outline(checkpoint).serialize(), to);
  std::vector<at::Tensor> flat{flat_bytes(checkpoint)};
  group->send(flat, to, kTransferTag)->wait();
}

Checkpoint receive_checkpoint(const Group& group, int from) {
  Checkpoint checkpoint = empty_like(State::parse(receive_text(group, from)));
  std::vector<at::Tensor> flat{at::empty({total_bytes(checkpoint)}, at::kByte)};
  group->recv(flat, from, kTransferTag)->wait();
  fill_from(flat.front(), checkpoint);
  return checkpoint;
}

}  // namespace isochron
