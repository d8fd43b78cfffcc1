#include "isochron/engine/async/tensor_layout.h"

#include <ATen/ATen.h>

namespace isochron {

std::vector<at::Tensor> TensorLayout::make_strips() const {
  std::vector<at::Tensor> made;
  made.reserve(strips.size());
  for (std::size_t strip = 0; strip < strips.size(); ++strip) {
    made.push_back(at::empty({strips[strip].elements}, at::TensorOptions(types[strip])));
  }
  return made;
}

at::Tensor TensorLayout::chunk_of(const std::vector<at::Tensor>& lists, std::size_t chunk) const {
  const Chunk& at = chunks[chunk];
  return lists[at.strip].narrow(0, at.first, at.size());
}

at::Tensor TensorLayout::slot_of(const std::vector<at::Tensor>& lists, std::size_t slot) const {
  const ParameterSlot& at = slots[slot];
  return lists[at.strip].narrow(0, at.first, at.size()).view(parameters[slot].sizes());
}

TensorLayout make_layout(const std::vector<std::vector<at::Tensor>>& groups, int servers, std::int64_t chunk_bytes) {
  TensorLayout layout;
  std::vector<ParameterSize> sizes;
  std::size_t next = 0;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (const at::Tensor& parameter : groups[group]) {
      const std::size_t number = next++;
      if (!parameter.requires_grad()) {
        continue;
      }
      layout.parameters.push_back(parameter);
      layout.numbers.push_back(number);
      sizes.push_back(
          {.group = group,
           .type = c10::toString(parameter.scalar_type()),
           .width = static_cast<std::int64_t>(parameter.element_size()),
           .elements = parameter.numel()});
    }
  }
  static_cast<ParameterLayout&>(layout) = lay_out(sizes, servers, chunk_bytes);
  layout.types.resize(layout.strips.size());
  for (std::size_t slot = 0; slot < layout.slots.size(); ++slot) {
    layout.types[layout.slots[slot].strip] = layout.parameters[slot].scalar_type();
  }
  return layout;
}

}  // namespace isochron
