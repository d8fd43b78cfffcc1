#include "isochron/engine/async/shard_state.h"

#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/optim/optimizer.h>

#include "isochron/engine/optimizer_state.h"

namespace isochron {
namespace {

using NamedTensors = std::map<std::string, at::Tensor>;
using server::Layout;

// "adam.3.exp_avg" is field "exp_avg" of parameter 3 of an Adam.
struct Name {
  std::string optimizer;
  std::string field;

  static Name parse(const std::string& text) {
    return {.optimizer = text.substr(0, text.find('.')), .field = text.substr(text.rfind('.') + 1)};
  }
  std::string of(std::size_t parameter) const { return optimizer + "." + std::to_string(parameter) + "." + field; }
};

// Fields of a piece's optimizer are lists like the values, or one number.
bool is_list(const Name& name) {
  return name.field != "step";
}

at::Tensor part_of(const std::vector<at::Tensor>& strips, const server::Slot& slot) {
  return strips[slot.strip].narrow(0, slot.first, slot.parameter.numel()).view(slot.parameter.sizes());
}

std::vector<at::Tensor> empty_strips(const Layout& layout) {
  std::vector<at::Tensor> strips;
  strips.reserve(layout.strips.size());
  for (const server::Strip& strip : layout.strips) {
    strips.push_back(at::zeros({strip.elements}, at::TensorOptions(strip.type)));
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

// The names of the fields that the pieces' optimizers have, which every server knows alike.
std::vector<std::string> field_names(const Group& group, server::ParameterServer::Pieces* pieces) {
  std::string mine;
  if (pieces != nullptr && !pieces->empty()) {
    for (const auto& [name, value] : optimizer_state(pieces->begin()->second.optimizer())) {
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
    const torch::optim::Optimizer& whole, const Layout& layout, server::ParameterServer::Pieces& pieces) {
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
  for (const server::Slot& slot : layout.slots) {
    for (const auto& [field, values] : strips) {
      if (const auto found = state.find(Name{name.optimizer, field}.of(slot.number)); found != state.end()) {
        part_of(values, slot).copy_(found->second);
      }
    }
  }
  for (auto& [number, piece] : pieces) {
    const server::Piece& at = layout.pieces[static_cast<std::size_t>(number)];
    NamedTensors mine;
    for (const auto& [field, values] : strips) {
      mine[Name{name.optimizer, field}.of(0)] = values[at.strip].narrow(0, at.first, at.size());
    }
    for (const auto& [field, value] : numbers) {
      mine[Name{name.optimizer, field}.of(0)] = value;
    }
    restore_optimizer_state(piece.optimizer(), mine);
  }
}

void gather_optimizer_state(
    const Group& group,
    int first_server,
    const Layout& layout,
    server::ParameterServer::Pieces* pieces,
    torch::optim::Optimizer& whole) {
  NamedTensors state;
  for (const std::string& text : field_names(group, pieces)) {
    const Name name = Name::parse(text);
    const std::vector<at::Tensor> strips = is_list(name) ? empty_strips(layout) : std::vector<at::Tensor>{};
    const at::Tensor number = at::zeros({}, at::kLong);
    for (std::size_t i = 0; i < layout.pieces.size(); ++i) {
      const server::Piece& at = layout.pieces[i];
      const int owner = first_server + at.server;
      const at::Tensor place = is_list(name) ? strips[at.strip].narrow(0, at.first, at.size()) : number;
      if (group->getRank() == owner) {
        place.copy_(optimizer_state(pieces->at(static_cast<std::int64_t>(i)).optimizer()).at(text));
      }
      broadcast_from(group, owner, place);
    }
    for (const server::Slot& slot : layout.slots) {
      state[name.of(slot.number)] = is_list(name) ? part_of(strips, slot).clone() : number;
    }
  }
  restore_optimizer_state(whole, state);
}

}  // namespace isochron
