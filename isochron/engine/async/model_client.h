// A model on parameter servers: its gradients go out chunk by chunk while backward still computes the rest, values come
// back straight into it.
//
// Parameters on the CPU become views of the strips that values are received into; those on other devices are copied. An
// iteration is: the session's start_pull() and finish_pull(), take_values(), forward, begin_push(), backward,
// send_rest() and the session's finish(). Not thread-safe, except that backward may call from a thread of autograd's.
#pragma once

#include <cstddef>
#include <exception>
#include <vector>

#include <ATen/core/Tensor.h>

#include "isochron/engine/async/tensor_layout.h"
#include "isochron/server/parameter_client.h"

namespace isochron {

class ModelClient {
 public:
  // Hooks the parameters.
  explicit ModelClient(TensorLayout layout);
  ModelClient(const ModelClient&) = delete;
  ModelClient& operator=(const ModelClient&) = delete;
  // Takes the hooks away; what is in flight must have ended.
  ~ModelClient();

  const TensorLayout& layout() const { return layout_; }
  // Where values are to be received, by strip.
  std::vector<server::Space> places() const;

  // After a pull.
  void take_values();
  // The gradients of the coming backward pass go to `client`, whose push has begun. A gradient that is not finite
  // counts as 0 if `only_finite`.
  void begin_push(server::ParameterClient& client, bool only_finite);
  // After backward: what had no gradient is sent as 0. Throws what went wrong during backward. Whether all gradients
  // were finite.
  bool send_rest();
  // The servers have the gradients.
  void release() { leaving_.assign(layout_.chunks.size(), {}); }
  // Chunks are on other servers.
  void move_chunks(const ParameterLayout& layout) { layout_.chunks = layout.chunks; }

 private:
  class Hook;

  void adopt_parameters();
  void take_gradient(std::size_t slot);
  void take(std::size_t slot_number, const at::Tensor& gradient);
  at::Tensor usable(const at::Tensor& gradient, at::ScalarType type);
  void count_in(std::size_t slot);

  TensorLayout layout_;
  std::vector<at::Tensor> values_;                   // by strip
  std::vector<at::Tensor> gradients_;                // likewise
  std::vector<std::vector<std::size_t>> chunks_of_;  // by slot

  server::ParameterClient* client_ = nullptr;  // null: nothing is to be sent
  bool only_finite_ = false;
  bool finite_ = true;
  std::vector<at::Tensor> leaving_;   // by chunk: its gradient, from when it is there until the next push
  std::vector<std::size_t> missing_;  // by chunk: slots whose gradient is not there yet
  std::vector<bool> has_gradient_;    // by slot
  std::exception_ptr failure_;
};

}  // namespace isochron
