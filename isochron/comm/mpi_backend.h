// PyTorch's collectives over MPI: what c10d::Reducer and everything else written for torch.distributed runs on. Large
// messages travel in chunks that are all in flight at once. CPU tensors are sent from where they are; others, and
// those that are not contiguous, go through a copy in (pinned) host memory, except that those of GPUs go by NCCL where
// all ranks have a GPU that it takes (gpu_collectives.h). Works return futures; a failure arrives
// there as TimeoutError or PeerLostError (error.h) and ends the use of the backend. Thread-safe, except that all ranks
// must issue their collectives in the same order.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <mpi.h>

#include "isochron/comm/backoff.h"
#include "isochron/comm/progress_thread.h"
#include "isochron/core/peer_error.h"

namespace c10d {
class Backend;
class ProcessGroup;
}  // namespace c10d

namespace isochron {

struct OperationTimes {
  std::string name;  // "allreduce of 1024 x Float"
  std::chrono::steady_clock::time_point submitted;
  std::chrono::steady_clock::time_point finished;
};

struct MpiBackendOptions {
  // The time limit of every operation that does not bring its own; above 0.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // Size of a chunk of a collective, 1 KiB to 1 GiB.
  std::int64_t chunk_bytes = std::int64_t{1} << 20;
  Backoff backoff;
  SlowWatch watch;
  // The GPU whose tensors this rank communicates; negative: none.
  int gpu = -1;
  // Told why GPUs do not use NCCL though all ranks have one; empty: nobody is.
  std::function<void(const std::string&)> warn;
  // Told about every operation that succeeded, on the progress thread; empty: nobody is.
  std::function<void(const OperationTimes&)> observer;

  // Throws std::invalid_argument naming the field, its value and what is permitted.
  void validate() const;
};

// Collective over `comm`, which is duplicated. The MPI session must outlive the backend.
c10::intrusive_ptr<c10d::Backend> make_mpi_backend(MPI_Comm comm, const MpiBackendOptions& options = {});

// Those who keep the others waiting (see ProgressThread); of a backend from make_mpi_backend.
std::vector<Peer> suspects(c10d::Backend& backend);

// Where the ranks are, by rank; of a backend from make_mpi_backend.
const std::vector<Peer>& peers_of(c10d::Backend& backend);

// Whether tensors of GPUs go by NCCL; of a backend from make_mpi_backend.
bool uses_nccl(c10d::Backend& backend);

// A group, as c10d::Reducer wants it, whose CPU and CUDA tensors both go through `backend`.
c10::intrusive_ptr<c10d::ProcessGroup> make_group(const c10::intrusive_ptr<c10d::Backend>& backend);

}  // namespace isochron
