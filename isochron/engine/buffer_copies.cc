#include "isochron/engine/buffer_copies.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace isochron {
namespace {

// PyTorch's BatchNorm changes its running statistics, a number for each channel, without raising their version.
bool changes_untold(const at::Tensor& tensor) {
  return tensor.dim() == 1 && tensor.is_floating_point();
}

}  // namespace

BufferCopies::BufferCopies(const std::vector<at::Tensor>& buffers) {
  for (const at::Tensor& buffer : buffers) {
    buffers_.push_back({.tensor = buffer});
  }
}

void BufferCopies::take() {
  const at::NoGradGuard no_grad;
  for (Buffer& buffer : buffers_) {
    const auto version = static_cast<std::int64_t>(buffer.tensor._version());
    if (version != buffer.version || changes_untold(buffer.tensor)) {
      buffer.copy = buffer.tensor.detach().clone();
      buffer.version = version;
    }
  }
}

void BufferCopies::restore() {
  const at::NoGradGuard no_grad;
  for (Buffer& buffer : buffers_) {
    const bool told = static_cast<std::int64_t>(buffer.tensor._version()) != buffer.version;
    if (buffer.copy.defined() && (told || changes_untold(buffer.tensor))) {
      buffer.tensor.copy_(buffer.copy);
      buffer.version = static_cast<std::int64_t>(buffer.tensor._version());
    }
  }
}

at::Tensor BufferCopies::before(const at::Tensor& tensor) const {
  const auto found =
      std::ranges::find_if(buffers_, [&](const Buffer& buffer) { return buffer.tensor.is_same(tensor); });
  return found == buffers_.end() ? tensor : found->copy;
}

}  // namespace isochron
