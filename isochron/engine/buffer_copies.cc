#include "isochron/engine/buffer_copies.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace isochron {

BufferCopies::BufferCopies(const std::vector<at::Tensor>& buffers) {
  for (const at::Tensor& buffer : buffers) {
    buffers_.push_back({.tensor = buffer});
  }
}

void BufferCopies::take() {
  const at::NoGradGuard no_grad;
  for (Buffer& buffer : buffers_) {
    const auto version = static_cast<std::int64_t>(buffer.tensor._version());
    if (version != buffer.version) {
      buffer.copy = buffer.tensor.detach().clone();
      buffer.version = version;
    }
  }
}

void BufferCopies::restore() {
  const at::NoGradGuard no_grad;
  for (Buffer& buffer : buffers_) {
    if (buffer.copy.defined() && static_cast<std::int64_t>(buffer.tensor._version()) != buffer.version) {
      buffer.tensor.copy_(buffer.copy);
      buffer.version = static_cast<std::int64_t>(buffer.tensor._version());
    }
  }
}

}  // namespace isochron
