#include "isochron/engine/async/shard_state.h"

#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/optim/optimizer.h>

#include "isochron/engine/async/tensor_chunk.h"
#include "isochron/engine/optimizer_state.h"

namespace isochron {
namespace {

using NamedTensors = std::map<std::string, at::Tensor>;

// "adam.3.exp_avg" is field "exp_avg" of parameter 3 of an Adam.
struct Name {
  std::string optimizer;
  std::string field;

  static Name parse(const std::string& text) {
    return {.optimizer = text.substr(0, text.find('.')), .field = text.substr(text.rfind('.') + 1)};
  }
  std::string of(std::size_t parameter) const { return optimizer + "." + std::to_string(parameter) + "." + field; }
};

// Fields of a chunk's optimizer are lists like the values, or one number.
bool is_list(const Name& name) {
  return name.field != "step";
}

torch::optim::Optimizer& optimizer_of(const std::unique_ptr<server::ServedChunk>& chunk) {
  return static_cast<TensorChunk&>(*chunk).optimizer();
}

std::vector<at::Tensor> empty_strips(const TensorLayout& layout) {
  std::vector<at::Tensor> strips = layout.make_strips();
  for (at::Tensor& strip : strips) {
    strip.zero_();
  }
  return strips;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

// The names of the fields that the chunks' optimizers have, which every server knows alike.
std::vector<std::string> field_names(const Group& group, server::ParameterServer::Chunks* chunks) {
  std::string mine;
  if (chunks != nullptr && !chunks->empty()) {
    for (const auto& [name, value] : optimizer_state(optimizer_of(chunks->begin()->second))) {
      mine += name + "\n";
    }
  }
  for (const std::string& text : all_gather(group, mine)) {
    if (!text.empty()) {
      return lines_of(text);
    }
  }
  return {};
}

void broadcast_from(const Group& group, int root, const at::Tensor& tensor) {
  c10d::BroadcastOptions options;
  options.rootRank = root;
  std::vector<at::Tensor> tensors{tensor};
  group->broadcast(tensors, options)->wait();
}

}  // namespace

void spread_optimizer_state(
    const torch::optim::Optimizer& whole, const TensorLayout& layout, server::ParameterServer::Chunks& chunks) {
  const NamedTensors state = optimizer_state(whole);
  if (state.empty()) {
    return;
  }
  std::map<std::string, std::vector<at::Tensor>> strips;  // by field
  std::map<std::string, at::Tensor> numbers;
  Name name;
  for (const auto& [text, value] : state) {
    name = Name::parse(text);
    if (!is_list(name)) {
      numbers[name.field] = value;
    } else if (!strips.contains(name.field)) {
      strips[name.field] = empty_strips(layout);
    }
  }
  for (std::size_t slot = 0; slot < layout.slots.size(); ++slot) {
    for (const auto& [field, values] : strips) {
      const auto found = state.find(Name{name.optimizer, field}.of(layout.numbers[slot]));
      if (found != state.end()) {
        layout.slot_of(values, slot).copy_(found->second);
      }
    }
  }
  for (auto& [number, chunk] : chunks) {
    NamedTensors mine;
    for (const auto& [field, values] : strips) {
      mine[Name{name.optimizer, field}.of(0)] = layout.chunk_of(values, static_cast<std::size_t>(number));
    }
    for (const auto& [field, value] : numbers) {
      mine[Name{name.optimizer, field}.of(0)] = value;
    }
    restore_optimizer_state(optimizer_of(chunk), mine);
  }
}

void gather_optimizer_state(
    const Group& group,
    int first_server,
    const TensorLayout& layout,
    server::ParameterServer::Chunks* chunks,
    torch::optim::Optimizer& whole) {
  NamedTensors state;
  for (const std::string& text : field_names(group, chunks)) {
    const Name name = Name::parse(text);
    const std::vector<at::Tensor> strips = is_list(name) ? empty_strips(layout) : std::vector<at::Tensor>{};
    const at::Tensor number = at::zeros({}, at::kLong);
    for (std::size_t i = 0; i < layout.chunks.size(); ++i) {
      const int owner = first_server + layout.chunks[i].server;
      const at::Tensor place = is_list(name) ? layout.chunk_of(strips, i) : number;
      if (group->getRank() == owner) {
        const NamedTensors known = optimizer_state(optimizer_of(chunks->at(static_cast<std::int64_t>(i))));
        const auto found = known.find(text);
        if (found != known.end()) {  // else it has taken no step yet: it was a lost server's
          place.copy_(found->second);
        } else {
          place.zero_();
        }
      }
      broadcast_from(group, owner, place);
    }
    for (std::size_t slot = 0; slot < layout.slots.size(); ++slot) {
      state[name.of(layout.numbers[slot])] = is_list(name) ? layout.slot_of(strips, slot).clone() : number;
    }
  }
  restore_optimizer_state(whole, state);
}

}  // namespace isochron
