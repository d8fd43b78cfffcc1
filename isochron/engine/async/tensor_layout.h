// Which part of a model's parameters lies on which server: core's layout, and the tensors that it is about.
#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

#include "isochron/core/dispatch/layout.h"

namespace isochron {

struct TensorLayout : ParameterLayout {
  std::vector<at::Tensor> parameters;  // by slot, those without gradients left out
  std::vector<std::size_t> numbers;    // by slot: of the parameter, over all groups
  std::vector<at::ScalarType> types;   // by strip

  // One uninitialized list of numbers for every strip.
  std::vector<at::Tensor> make_strips() const;
  // The part of such lists that belongs to a chunk, or to a parameter, in its shape.
  at::Tensor chunk_of(const std::vector<at::Tensor>& strips, std::size_t chunk) const;
  at::Tensor slot_of(const std::vector<at::Tensor>& strips, std::size_t slot) const;
};

// `groups`: the optimizer's parameters.
TensorLayout make_layout(
    const std::vector<std::vector<at::Tensor>>& groups, int servers, std::int64_t chunk_bytes = kChunkBytes);

}  // namespace isochron
