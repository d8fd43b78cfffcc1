// A tensor as MPI needs it: contiguous in host memory. That is the caller's tensor itself wherever possible, else a
// copy, pinned if the tensor lives on an accelerator. Copies block until the data has arrived.
#pragma once

#include <ATen/core/Tensor.h>

namespace isochron {

class HostTensor {
 public:
  enum class Contents { kNeeded, kOverwritten };

  HostTensor(const at::Tensor& user, Contents contents);

  // Hands the result to the caller's tensor.
  void write_back() const;

  const at::Tensor& host() const { return host_; }
  char* data() const { return static_cast<char*>(host_.data_ptr()); }

 private:
  at::Tensor user_;
  at::Tensor host_;
};

}  // namespace isochron
