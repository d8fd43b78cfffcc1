#include "isochron/comm/host_tensor.h"

#include <stdexcept>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace isochron {

HostTensor::HostTensor(const at::Tensor& user, Contents contents) : user_(user) {
  if (user.layout() != at::kStrided) {
    throw std::invalid_argument("layout of a tensor to communicate is not strided; permitted: dense tensors");
  }
  if (user.is_cpu() && user.is_contiguous()) {
    host_ = user;
    return;
  }
  const at::NoGradGuard no_grad;  // parameters are copied too
  host_ = at::empty(user.sizes(), user.options().device(at::kCPU).pinned_memory(!user.is_cpu()).requires_grad(false));
  if (contents == Contents::kNeeded) {
    host_.copy_(user);
  }
}

void HostTensor::write_back() const {
  if (!host_.is_same(user_)) {
    const at::NoGradGuard no_grad;
    user_.copy_(host_);
  }
}

}  // namespace isochron
