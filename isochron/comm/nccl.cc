#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include "isochron/comm/gpu_collectives.h"
#include "isochron/comm/mpi_call.h"
#include "isochron/comm/own_interface.h"
#include "isochron/comm/reduction.h"
#include "isochron/comm/ulfm.h"

namespace isochron {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPause = std::chrono::microseconds(200);
// Beyond the time-out, for what every process does when it uses its GPU for the first time.
constexpr auto kTimeToBegin = std::chrono::seconds(60);

std::optional<ncclDataType_t> nccl_type(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
      return ncclFloat32;
    case c10::ScalarType::Double:
      return ncclFloat64;
    case c10::ScalarType::Half:
      return ncclFloat16;
    case c10::ScalarType::BFloat16:
      return ncclBfloat16;
    case c10::ScalarType::Byte:
      return ncclUint8;
    case c10::ScalarType::Char:
      return ncclInt8;
    case c10::ScalarType::Int:
      return ncclInt32;
    case c10::ScalarType::Long:
      return ncclInt64;
    default:
      return std::nullopt;
  }
}

std::optional<ncclRedOp_t> nccl_operation(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return ncclSum;
    case Reduction::kProduct:
      return ncclProd;
    case Reduction::kMin:
      return ncclMin;
    case Reduction::kMax:
      return ncclMax;
    default:
      return std::nullopt;
  }
}

bool is_dense_on_gpu(const at::Tensor& tensor) {
  return tensor.is_cuda() && tensor.layout() == at::kStrided && tensor.is_contiguous();
}

// The smallest of all ranks' values.
int least(MPI_Comm comm, int value) {
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
  return value;
}

class Nccl : public GpuCollectives {
 public:
  Nccl(ncclComm_t comm, c10::DeviceIndex gpu, std::chrono::milliseconds timeout)
      : comm_(comm), stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, gpu)), timeout_(timeout) {}
  // Unlike ncclCommDestroy() it does not wait for other ranks, who may be gone.
  ~Nccl() override { abort(); }

  bool takes(const std::vector<at::Tensor>& tensors, Reduction reduction) const override {
    bool all = nccl_operation(reduction).has_value();
    for (const at::Tensor& tensor : tensors) {
      all = all && is_dense_on_gpu(tensor) && nccl_type(tensor.scalar_type());
    }
    return all && !tensors.empty();
  }

  Started all_reduce(const std::vector<at::Tensor>& tensors, Reduction reduction) override {
    return start(tensors, [&] {
      ncclGroupStart();
      for (const at::Tensor& tensor : tensors) {
        ncclAllReduce(
            tensor.const_data_ptr(),
            tensor.mutable_data_ptr(),
            static_cast<std::size_t>(tensor.numel()),
            *nccl_type(tensor.scalar_type()),
            *nccl_operation(reduction),
            comm_,
            stream_);
      }
      return ncclGroupEnd();
    });
  }

  Started broadcast(const at::Tensor& tensor, int root) override {
    return start({tensor}, [&] {
      return ncclBroadcast(
          tensor.const_data_ptr(), tensor.mutable_data_ptr(), tensor.nbytes(), ncclUint8, root, comm_, stream_);
    });
  }

  Started all_gather(const at::Tensor& all, const at::Tensor& mine) override {
    return start({all, mine}, [&] {
      return ncclAllGather(mine.const_data_ptr(), all.mutable_data_ptr(), mine.nbytes(), ncclUint8, comm_, stream_);
    });
  }

  Started all_to_all(const at::Tensor& all, const at::Tensor& mine) override {
    return start({all, mine}, [&] {
      int size = 0;
      ncclCommCount(comm_, &size);
      const std::size_t share = mine.nbytes() / static_cast<std::size_t>(size);
      const auto* from = static_cast<const char*>(mine.const_data_ptr());
      auto* to = static_cast<char*>(all.mutable_data_ptr());
      ncclGroupStart();
      for (int rank = 0; rank < size; ++rank, from += share, to += share) {
        ncclSend(from, share, ncclUint8, rank, comm_, stream_);
        ncclRecv(to, share, ncclUint8, rank, comm_, stream_);
      }
      return ncclGroupEnd();
    });
  }

  void abort() override {
    const std::lock_guard lock(mutex_);
    if (comm_ != nullptr) {
      ncclCommAbort(std::exchange(comm_, nullptr));
    }
  }

  // Success, in progress, or what is wrong; success after abort().
  ncclResult_t state() {
    const std::lock_guard lock(mutex_);
    ncclResult_t state = ncclSuccess;
    if (comm_ != nullptr) {
      ncclCommGetAsyncError(comm_, &state);
    }
    return state;
  }

  // Until NCCL has done what it does beside the GPU; false after this time, or if `give_up` says so.
  template <typename GiveUp>
  bool settle(std::chrono::milliseconds time, const GiveUp& give_up) {
    const auto began = Clock::now();
    while (state() == ncclInProgress) {
      const auto waited = Clock::now() - began;
      if (waited >= time || give_up()) {
        return false;
      }
      if (waited > kPause) {  // a collective is started in some microseconds, and a layer may wait for it
        std::this_thread::sleep_for(kPause);
      }
    }
    return true;
  }

 private:
  // The tensors live until it has ended.
  template <typename Call>
  Started start(std::vector<at::Tensor> tensors, const Call& call) {
    const c10::cuda::CUDAGuard guard(stream_.device_index());
    c10::Event ready(c10::DeviceType::CUDA);
    ready.record(c10::cuda::getCurrentCUDAStream().unwrap());
    ready.block(stream_.unwrap());
    {
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr) {
        return {.has_ended = [] { return true; }, .block_stream = [] {}};
      }
      check(call());
    }
    if (!settle(timeout_, [] { return false; })) {
      throw TimeoutError("NCCL did not start a collective in time", {});
    }
    auto done = std::make_shared<c10::Event>(c10::DeviceType::CUDA);
    done->record(stream_.unwrap());
    const auto has_ended = [this, done, tensors = std::move(tensors)] {
      if (done->query()) {
        return true;
      }
      check(state());
      return false;
    };
    const auto block_stream = [done] { done->block(c10::cuda::getCurrentCUDAStream().unwrap()); };
    return {.has_ended = has_ended, .block_stream = block_stream};
  }

  static void check(ncclResult_t result) {
    if (result != ncclSuccess && result != ncclInProgress) {
      throw PeerLostError(std::string("NCCL: ") + ncclGetErrorString(result), {});
    }
  }

  std::mutex mutex_;
  ncclComm_t comm_;  // null after abort()
  const c10::cuda::CUDAStream stream_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace

std::unique_ptr<GpuCollectives> GpuCollectives::make(
    MPI_Comm comm, int gpu, std::chrono::milliseconds timeout, std::string& refusal) {
  if (least(comm, gpu >= 0 ? 1 : 0) == 0) {
    return nullptr;
  }
  const std::string interface = interface_for_mpi();
  if (!interface.empty()) {
    setenv("NCCL_SOCKET_IFNAME", interface.c_str(), /*overwrite=*/0);
  }
  // All connections now, or the first collectives would wait for others while they are started.
  setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const auto index = static_cast<c10::DeviceIndex>(gpu);
  const c10::cuda::CUDAGuard guard(index);
  ncclUniqueId id{};
  if (rank == 0) {
    ncclGetUniqueId(&id);
  }
  check_mpi(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, comm), "MPI_Bcast");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t made = nullptr;
  ncclResult_t result = ncclCommInitRankConfig(&made, size, id, rank, &config);
  std::unique_ptr<Nccl> nccl;
  if (made != nullptr) {
    nccl = std::make_unique<Nccl>(made, index, timeout);
    const auto lost = [comm] { return !failed_ranks(comm).empty() || is_revoked(comm); };
    if (!nccl->settle(timeout + kTimeToBegin, lost)) {
      throw PeerLostError("a worker was lost, or is late, while NCCL connected the workers", {});
    }
    result = nccl->state();
  }
  const bool ok = nccl && result == ncclSuccess;
  refusal = ok ? "NCCL refuses the GPU of another worker" : std::string("NCCL: ") + ncclGetErrorString(result);
  if (least(comm, ok ? 1 : 0) == 0) {
    return nullptr;
  }
  return nccl;
}

}  // namespace isochron
