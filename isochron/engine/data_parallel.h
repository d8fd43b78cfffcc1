// Data-parallel gradients by PyTorch's own c10d::Reducer (what DistributedDataParallel runs on): gradients are averaged
// over the group bucket by bucket while the backward pass still computes the rest.
//
// With worker k's mean loss over its b_k samples scaled by b_k K / B (core's loss_weight) before backward, the
// average over K workers is (1/K) sum_k (b_k K / B) g_k = (1/B) sum of all samples' gradients: exactly that of one
// batch of B, however unequal the b_k are.
//
// A step is: begin_step(), forward, backward(loss, weight), optimizer. A batch too large for memory is computed in any
// number of micro-batches: forward and accumulate() for all but the last, each with the weight of its own size. All
// ranks must take the same steps. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <c10/util/intrusive_ptr.h>

#include "isochron/core/job_settings.h"

namespace at {
class Tensor;
}
namespace c10d {
class ProcessGroup;
}

namespace isochron {

class ErrorFeedback;

enum class Start : std::uint8_t {
  kBroadcast,  // everybody gets rank 0's values
  kAsIs,       // all have the same already
};

struct BackwardResult {
  using TimePoint = std::chrono::steady_clock::time_point;
  TimePoint started;
  // The last gradient of this worker was computed: where its own work ends and waiting for others begins.
  TimePoint last_gradient;
  TimePoint finished;
  // |g_k|^2 of the mean gradient of this worker's samples since begin_step(); 0 if their weight is 0.
  double local_square = 0;
  // |g|^2 of the average. The last bits may differ between workers of different hardware.
  double global_square = 0;
};

// Which gradients a backward pass computes.
struct GradientOptions {
  bool only_own = false;      // those of these parameters alone, whatever else the loss depends on
  bool retain_graph = false;  // another pass goes through what this one goes through
};

// Collective: checks that all ranks have the same parameters by number, type and shape, and gives all of them rank 0's
// values; the same for `buffers` (running statistics).
void broadcast_model(
    const std::vector<at::Tensor>& parameters,
    const std::vector<at::Tensor>& buffers,
    const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const DataParallelOptions& options);

class DataParallel {
 public:
  // With kBroadcast it begins with broadcast_model(); buffers are not touched afterwards. `feedback` is for kInt8 and
  // need not end with this; null: one of its own.
  DataParallel(
      std::vector<at::Tensor> parameters,
      const std::vector<at::Tensor>& buffers,
      const c10::intrusive_ptr<c10d::ProcessGroup>& group,
      const DataParallelOptions& options = {},
      Start start = Start::kBroadcast,
      std::shared_ptr<ErrorFeedback> feedback = {});
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;
  // Also the way out after a failure. Reset the gradients then: some may be half reduced.
  ~DataParallel();

  // Before forward; before each pass, if a step has several. Communicates after the first one, when the buckets are
  // laid anew in the order of the gradients.
  void begin_step();

  // Adds `weight` times the local gradient to the gradients; nothing is exchanged.
  void accumulate(const at::Tensor& loss, double weight, const GradientOptions& options = {});

  // The same, then leaves in every gradient the group's average of what it holds. Throws what the backend reports.
  // `at_last_gradient` is called, perhaps on a thread of autograd's, when this worker's own gradients are complete and
  // before the others' are waited for: `finished` and `global_square` are not known then. It must not throw.
  using AtLastGradient = std::function<void(const BackwardResult&)>;
  BackwardResult backward(
      const at::Tensor& loss,
      double weight,
      const AtLastGradient& at_last_gradient = {},
      const GradientOptions& options = {});

  // Whether every gradient is a number: at the last local gradient this worker's own, after backward() the average.
  bool finite() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace isochron
