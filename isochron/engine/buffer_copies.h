// Copies of a model's buffers (running statistics) as they were when a step began, for when it did not happen. Only
// those that may have changed are copied.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace isochron {

class BufferCopies {
 public:
  explicit BufferCopies(const std::vector<at::Tensor>& buffers);

  // What they are now is what restore() gives back.
  void take();
  void restore();
  // The copy of that one; of a tensor that is none of these, the tensor itself.
  at::Tensor before(const at::Tensor& tensor) const;

 private:
  struct Buffer {
    at::Tensor tensor;
    at::Tensor copy;
    std::int64_t version = -1;  // of the tensor when it was copied
  };
  std::vector<Buffer> buffers_;
};

}  // namespace isochron
