#include "isochron/engine/checkpoint_transfer.h"

#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "isochron/core/error.h"
#include "isochron/core/state.h"

namespace isochron {
namespace {

constexpr int kTransferTag = 11;

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

}  // namespace

std::string write_on_first(
    const std::filesystem::path& path, const Group& group, const std::function<Checkpoint()>& make) {
  std::string failure;
  if (group->getRank() == 0) {
    try {
      write_checkpoint(path, make());
    } catch (const Error& error) {
      failure = error.what();
    }
  }
  return broadcast(group, failure);
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
