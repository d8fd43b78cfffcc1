// Collectives of GPU tensors by NCCL, from GPU to GPU. CMake picks nccl.cc, or no_nccl.cc where LibTorch is a build for
// CPUs or NCCL is missing: there GPU tensors go through host memory and MPI.
//
// A collective runs on a stream of its own, behind what the caller's current stream has been given. Nothing here waits
// for another rank: whoever starts a collective asks from time to time whether it has ended, and who finds that it
// never will calls abort(). Thread-safe, except that all ranks must start their collectives in the same order.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <mpi.h>

namespace at {
class Tensor;
}

namespace isochron {

enum class Reduction;

class GpuCollectives {
 public:
  struct Started {
    // Whether it has ended; throws PeerLostError if NCCL says that it will not.
    std::function<bool()> has_ended;
    // What the caller's current stream is given after this runs behind it. The caller does not wait.
    std::function<void()> block_stream;
  };

  // Collective over `comm`: null on all ranks unless all of them have a GPU (`gpu`, its number here; negative: none)
  // and NCCL takes these GPUs; `refusal`, if all have one, is then why not. Throws PeerError.
  static std::unique_ptr<GpuCollectives> make(
      MPI_Comm comm, int gpu, std::chrono::milliseconds timeout, std::string& refusal);

  GpuCollectives() = default;
  GpuCollectives(const GpuCollectives&) = delete;
  GpuCollectives& operator=(const GpuCollectives&) = delete;
  virtual ~GpuCollectives() = default;

  // Whether these can be reduced: dense GPU tensors of one of NCCL's types. The answer is the same on all ranks where
  // the tensors are alike.
  virtual bool takes(const std::vector<at::Tensor>& tensors, Reduction reduction) const = 0;
  // In place.
  virtual Started all_reduce(const std::vector<at::Tensor>& tensors, Reduction reduction) = 0;
  // Sends bytes, so any type will do.
  virtual Started broadcast(const at::Tensor& tensor, int root) = 0;
  virtual Started all_gather(const at::Tensor& all, const at::Tensor& mine) = 0;
  // A share of `mine` for every rank, and one of every rank's in `all`. The first one connects the ranks, and may wait
  // for them as long as the time limit.
  virtual Started all_to_all(const at::Tensor& all, const at::Tensor& mine) = 0;

  // Ends what is under way, with whatever result; later collectives end at once. On this rank only.
  virtual void abort() = 0;
};

}  // namespace isochron
