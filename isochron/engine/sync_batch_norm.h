// Batch normalisation over the global batch, exact however unequal the workers' shares are.
//
// With n_k values per channel on worker k and N = sum n_k, every worker normalises with
//   mean = sum_k (n_k / N) mean_k,   var = sum_k (n_k / N) (var_k + (mean_k - mean)^2),
// and the gradient of its inputs is that of all workers' losses together:
//   dx = (w / s) (dy - (sum dy + xhat sum dy xhat) / N),   s = sqrt(var + eps),   sums over all workers.
// Losses are scaled by b_k K / B and gradients averaged (data_parallel.h), so what remains is one batch of B.
//
// Models stay as they are: every call of PyTorch's batch_norm in training mode while a Scope is alive on this thread is
// taken over, whether from a C++ module or from TorchScript. A layer costs one all-gather of 2 C + 1 numbers forward
// and one all-reduce of 2 C backward. Where gradients go by NCCL they do, too: behind what computes them, without the
// host waiting, and the kernels of PyTorch's SyncBatchNorm do the arithmetic. Else they go through host memory, so that
// workers on CPUs and GPUs mix. A group of one costs nothing. All workers must run the same layers in the same order.
// Second derivatives are refused.
//
// A lost worker does not show in the model's code: from then on a layer uses what this worker has, and the failure is
// kept for whoever asks at the end of the step.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class ProcessGroup;
}

namespace isochron {

class BatchNormExchange;

// One per job; its scopes may be on any thread.
class SyncBatchNorm {
 public:
  // Around every exchange for which the thread itself waits: true before, false after.
  using OnWait = std::function<void(bool waiting)>;
  explicit SyncBatchNorm(const c10::intrusive_ptr<c10d::ProcessGroup>& group, OnWait on_wait = {});
  SyncBatchNorm(const SyncBatchNorm&) = delete;
  SyncBatchNorm& operator=(const SyncBatchNorm&) = delete;
  ~SyncBatchNorm();

  // Around forward; backward may come later. TorchScript's optimiser, which would replace batch_norm, is off meanwhile.
  class Scope {
   public:
    // counts = false: this worker's samples are a stand-in; they are normalised like the others' and count for nothing.
    // all_count: no worker has a stand-in, which the kernels of GPUs do not know.
    Scope(const SyncBatchNorm& owner, bool counts, bool all_count = false);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    BatchNormExchange* const outer_;
    const bool outer_counts_;
    const bool outer_all_count_;
    const bool optimised_;
  };

  // Throws what went wrong in an exchange, if anything did.
  void rethrow_failure() const;

  // Exchanges, in which it waited for other workers, since the last call; of forward and backward on all threads. Those
  // of a GPU have a time once the GPU is done with them.
  struct Waits {
    std::chrono::steady_clock::duration time{};
    std::int64_t count = 0;
  };
  Waits take_waits();

 private:
  const c10::intrusive_ptr<BatchNormExchange> exchange_;
};

}  // namespace isochron
