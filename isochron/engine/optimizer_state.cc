#include "isochron/engine/optimizer_state.h"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "isochron/core/error.h"

namespace isochron {
namespace {

using NamedTensors = std::map<std::string, at::Tensor>;
using torch::optim::Optimizer;

// The fields of one parameter's state, named once for saving and restoring.
template <class Visit>
void visit_fields(torch::optim::SGDParamState& state, Visit& visit) {
  visit("momentum_buffer", state.momentum_buffer());
}

template <class AdamState, class Visit>
void visit_fields(AdamState& state, Visit& visit) {
  visit("step", state.step());
  visit("exp_avg", state.exp_avg());
  visit("exp_avg_sq", state.exp_avg_sq());
  visit("max_exp_avg_sq", state.max_exp_avg_sq());
}

struct Save {
  NamedTensors& target;
  std::string prefix;

  void operator()(const std::string& name, const at::Tensor& field) const {
    if (field.defined()) {
      target[prefix + name] = field;
    }
  }
  void operator()(const std::string& name, std::int64_t field) const {
    target[prefix + name] = torch::scalar_tensor(field, torch::kLong);
  }
};

struct Restore {
  const NamedTensors& source;
  std::string prefix;
  at::Tensor parameter;
  std::size_t& found;  // fields, over all parameters

  void operator()(const std::string& name, at::Tensor& field) const {
    if (const at::Tensor* const stored = find(name, parameter.sizes(), parameter.scalar_type())) {
      field = stored->to(parameter.device(), /*non_blocking=*/false, /*copy=*/true);
    }
  }
  void operator()(const std::string& name, std::int64_t& field) const {
    if (const at::Tensor* const stored = find(name, {}, torch::kLong)) {
      field = stored->item<std::int64_t>();
    }
  }

 private:
  const at::Tensor* find(const std::string& name, at::IntArrayRef sizes, at::ScalarType type) const {
    const auto stored = source.find(prefix + name);
    if (stored == source.end()) {
      return nullptr;
    }
    if (stored->second.sizes() != sizes || stored->second.scalar_type() != type) {
      throw Error("the optimizer's state " + prefix + name + " belongs to a parameter of another shape or type");
    }
    ++found;
    return &stored->second;
  }
};

// Calls `action` with the name of the optimizer's class and, as a type, the state that it keeps of a parameter.
template <class Action>
void with_class_of(const Optimizer& optimizer, Action action) {
  if (dynamic_cast<const torch::optim::SGD*>(&optimizer) != nullptr) {
    action.template operator()<torch::optim::SGDParamState>("sgd");
  } else if (dynamic_cast<const torch::optim::Adam*>(&optimizer) != nullptr) {
    action.template operator()<torch::optim::AdamParamState>("adam");
  } else if (dynamic_cast<const torch::optim::AdamW*>(&optimizer) != nullptr) {
    action.template operator()<torch::optim::AdamWParamState>("adamw");
  } else {
    throw std::invalid_argument("the optimizer is of an unknown class; permitted: SGD, Adam, AdamW");
  }
}

std::string prefix_of(const std::string& name, std::size_t parameter) {
  return name + "." + std::to_string(parameter) + ".";
}

}  // namespace

std::vector<at::Tensor> parameters_of(const Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const auto& group : optimizer.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  }
  return parameters;
}

NamedTensors optimizer_state(const Optimizer& optimizer) {
  NamedTensors tensors;
  const auto parameters = parameters_of(optimizer);
  with_class_of(optimizer, [&]<class State>(const std::string& name) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto entry = optimizer.state().find(parameters[i].unsafeGetTensorImpl());
      if (entry != optimizer.state().end()) {
        const Save save{.target = tensors, .prefix = prefix_of(name, i)};
        visit_fields(static_cast<State&>(*entry->second), save);
      }
    }
  });
  return tensors;
}

void restore_optimizer_state(Optimizer& optimizer, const NamedTensors& state) {
  const auto parameters = parameters_of(optimizer);
  std::remove_reference_t<decltype(optimizer.state())> restored;
  std::size_t found = 0;
  with_class_of(optimizer, [&]<class State>(const std::string& name) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const std::size_t before = found;
      const Restore restore{.source = state, .prefix = prefix_of(name, i), .parameter = parameters[i], .found = found};
      auto entry = std::make_unique<State>();
      visit_fields(*entry, restore);
      if (found > before) {
        restored[parameters[i].unsafeGetTensorImpl()] = std::move(entry);
      }
    }
  });
  if (found != state.size()) {
    throw Error("the optimizer's state is of another class of optimizer, or of more parameters");
  }
  optimizer.state() = std::move(restored);
}

}  // namespace isochron
