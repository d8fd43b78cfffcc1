#include "isochron/comm/mpi_backend.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "isochron/comm/gpu_collectives.h"
#include "isochron/comm/host_tensor.h"
#include "isochron/comm/mpi_call.h"
#include "isochron/comm/progress_thread.h"
#include "isochron/comm/reduction.h"

namespace isochron {
namespace {

using Clock = std::chrono::steady_clock;
using Contents = HostTensor::Contents;
using Partners = Operation::Partners;
using Requests = Operation::Requests;
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// MPI counts are int; a message between two ranks is cut only where it must be.
constexpr std::int64_t kMaxMessageBytes = std::int64_t{1} << 30;

class MpiWork : public c10d::Work {
 public:
  MpiWork(int rank, c10d::OpType type, Tensors results, std::function<void()> block_stream = {})
      : Work(rank, type),
        results_(std::move(results)),
        block_stream_(std::move(block_stream)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

  void complete(int source) {
    source_ = source;
    future_->markCompleted(c10::IValue(results_));
    finish();
  }
  void fail(const std::exception_ptr& error) {
    future_->setError(error);
    finish(error);
  }

  // After a collective on GPUs the caller's stream is behind it, and the caller need not wait; after others it waits.
  void blockCurrentStream() override {
    if (block_stream_) {
      block_stream_();
    } else {
      wait();
    }
  }
  int sourceRank() const override { return source_; }
  Tensors result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  const Tensors results_;
  const std::function<void()> block_stream_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
  int source_ = MPI_ANY_SOURCE;
};

// Calls call(first element, count) for every chunk.
template <typename Call>
void in_chunks(std::int64_t elements, std::int64_t elements_per_chunk, const Call& call) {
  for (std::int64_t first = 0; first < elements; first += elements_per_chunk) {
    call(first, static_cast<int>(std::min(elements_per_chunk, elements - first)));
  }
}

// Calls call(type), which is `name`, for a type of `count` bytes of every share: `share` bytes apart. MPI keeps it till
// the operation that is started with it ends.
template <typename Call>
void with_bytes_of_every_share(int count, std::size_t share, const char* name, const Call& call) {
  MPI_Datatype bytes = MPI_DATATYPE_NULL;
  MPI_Datatype strided = MPI_DATATYPE_NULL;
  check_mpi(MPI_Type_contiguous(count, MPI_BYTE, &bytes), "MPI_Type_contiguous");
  check_mpi(MPI_Type_create_resized(bytes, 0, static_cast<MPI_Aint>(share), &strided), "MPI_Type_create_resized");
  check_mpi(MPI_Type_commit(&strided), "MPI_Type_commit");
  const int code = call(strided);
  MPI_Type_free(&bytes);
  MPI_Type_free(&strided);
  check_mpi(code, name);
}

MPI_Request& add(Requests& requests) {
  return requests.emplace_back(MPI_REQUEST_NULL);
}

std::string described(const char* name, const at::Tensor& tensor) {
  return std::string(name) + " of " + std::to_string(tensor.numel()) + " x " + c10::toString(tensor.scalar_type());
}

const at::Tensor& only(const Tensors& tensors, const char* name) {
  if (tensors.size() != 1) {
    throw std::invalid_argument(
        std::string("number of tensors of ") + name + " is " + std::to_string(tensors.size()) + "; permitted: 1");
  }
  return tensors.front();
}

void check_shares(const at::Tensor& all, const at::Tensor& share, int size, const char* name) {
  if (all.numel() != share.numel() * size || all.scalar_type() != share.scalar_type()) {
    throw std::invalid_argument(
        described(name, all) + " does not consist of " + std::to_string(size) + " shares of " +
        std::to_string(share.numel()) + " x " + c10::toString(share.scalar_type()));
  }
}

HostTensor input_apart_from(const at::Tensor& input, const at::Tensor& output) {
  // MPI forbids the overlap that PyTorch permits.
  return {input.is_alias_of(output) ? input.clone() : input, Contents::kNeeded};
}

Reduction reduction_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::AVG:
      return Reduction::kSum;
    case c10d::ReduceOp::PRODUCT:
      return Reduction::kProduct;
    case c10d::ReduceOp::MIN:
      return Reduction::kMin;
    case c10d::ReduceOp::MAX:
      return Reduction::kMax;
    case c10d::ReduceOp::BAND:
      return Reduction::kBitAnd;
    case c10d::ReduceOp::BOR:
      return Reduction::kBitOr;
    case c10d::ReduceOp::BXOR:
      return Reduction::kBitXor;
    default:
      throw std::invalid_argument("reduction is PREMUL_SUM; permitted: SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR");
  }
}

class MpiBackend : public c10d::Backend {
 public:
  MpiBackend(std::unique_ptr<GpuCollectives> gpu, std::unique_ptr<ProgressThread> progress, MpiBackendOptions options)
      : Backend(progress->rank(), progress->size()),
        options_(std::move(options)),
        timeout_(options_.timeout),
        gpu_(std::move(gpu)),
        progress_(std::move(progress)) {}

  const std::string getBackendName() const override { return "isochron-mpi"; }  // NOLINT: PyTorch's signature
  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  void abort() override { progress_->abort(); }
  std::vector<Peer> suspects() { return progress_->suspects(); }
  const std::vector<Peer>& peers() const { return progress_->peers(); }
  bool uses_nccl() const { return gpu_ != nullptr; }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    return reduce_everywhere(tensors, opts, c10d::OpType::ALLREDUCE);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    return reduce_everywhere(tensors, opts, c10d::OpType::ALLREDUCE_COALESCED);
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<std::int64_t>& output_splits,
      std::vector<std::int64_t>& input_splits,
      const c10d::AllToAllOptions& opts) override;
  WorkPtr reduce_scatter(
      Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

 private:
  // What an operation does besides communicating.
  struct Job {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    Operation operation;
    Tensors results;                     // of the work and its future
    std::function<void()> finish;        // brings the results to the caller's tensors; may throw
    std::function<void()> block_stream;  // of a collective on GPUs
  };

  WorkPtr submit(Job job);
  // For a collective that NCCL has started.
  WorkPtr submit_on_gpu(
      c10d::OpType type,
      std::string name,
      std::chrono::milliseconds timeout,
      GpuCollectives::Started started,
      Tensors results) {
    return submit(
        {.type = type,
         .operation =
             {.name = std::move(name),
              .timeout = timeout_of(timeout),
              .has_ended = std::move(started.has_ended),
              .cancel = [this] { gpu_->abort(); }},
         .results = std::move(results),
         .block_stream = std::move(started.block_stream)});
  }
  WorkPtr reduce_everywhere(const Tensors& tensors, const c10d::AllreduceOptions& opts, c10d::OpType type);
  WorkPtr receive(const Tensors& tensors, int source, int tag, c10d::OpType type);

  std::chrono::milliseconds timeout_of(std::chrono::milliseconds asked) const {
    return asked == c10d::kUnsetTimeout ? timeout_.load() : asked;
  }
  std::int64_t elements_per_chunk(const at::Tensor& tensor) const {
    return std::max<std::int64_t>(1, options_.chunk_bytes / static_cast<std::int64_t>(tensor.element_size()));
  }
  void average(const at::Tensor& host, const c10d::ReduceOp& op) const {
    if (op == c10d::ReduceOp::AVG) {
      const at::NoGradGuard no_grad;
      host.div_(getSize(), at::isIntegralType(host.scalar_type(), true) ? std::optional("trunc") : std::nullopt);
    }
  }

  const MpiBackendOptions options_;
  std::atomic<std::chrono::milliseconds> timeout_;
  MpiReductions reductions_;
  const std::unique_ptr<GpuCollectives> gpu_;  // null: by way of the host
  std::unique_ptr<ProgressThread> progress_;   // goes first: what is in flight uses the rest
};

WorkPtr MpiBackend::submit(Job job) {
  auto work = c10::make_intrusive<MpiWork>(getRank(), job.type, std::move(job.results), std::move(job.block_stream));
  job.operation.done = [work,
                        finish = std::move(job.finish),
                        observer = options_.observer,
                        times = OperationTimes{.name = job.operation.name, .submitted = Clock::now()}](
                           const std::exception_ptr& error, int source) mutable {
    if (error) {
      work->fail(error);
      return;
    }
    try {
      if (finish) {
        finish();
      }
      if (observer) {
        times.finished = Clock::now();
        observer(times);
      }
    } catch (...) {
      work->fail(std::current_exception());
      return;
    }
    work->complete(source);
  };
  progress_->submit(std::move(job.operation));
  return work;
}

WorkPtr MpiBackend::reduce_everywhere(const Tensors& tensors, const c10d::AllreduceOptions& opts, c10d::OpType type) {
  const Reduction reduction = reduction_of(opts.reduceOp);
  // A division after it would have to be waited for as well.
  if (gpu_ && opts.reduceOp != c10d::ReduceOp::AVG && gpu_->takes(tensors, reduction)) {
    const std::string name = described("allreduce", tensors.front());
    return submit_on_gpu(type, name, opts.timeout, gpu_->all_reduce(tensors, reduction), tensors);
  }
  struct Part {
    HostTensor tensor;
    MPI_Datatype type;
    MPI_Op operation;
  };
  std::vector<Part> parts;
  for (const at::Tensor& tensor : tensors) {
    const auto element = tensor.scalar_type();
    parts.push_back(
        {HostTensor(tensor, Contents::kNeeded), mpi_type(element), reductions_.operation(reduction, element)});
  }
  struct Chunk {
    char* data;
    int count;
    MPI_Datatype type;
    MPI_Op operation;
  };
  std::vector<Chunk> chunks;
  for (const Part& part : parts) {
    const at::Tensor& host = part.tensor.host();
    in_chunks(host.numel(), elements_per_chunk(host), [&](std::int64_t first, int count) {
      chunks.push_back({part.tensor.data() + (first * host.element_size()), count, part.type, part.operation});
    });
  }
  const auto reduce = [](const Chunk& chunk, MPI_Comm comm, Requests& requests) {
    check_mpi(
        MPI_Iallreduce(MPI_IN_PLACE, chunk.data, chunk.count, chunk.type, chunk.operation, comm, &add(requests)),
        "MPI_Iallreduce");
  };
  Operation operation{
      .name = tensors.empty() ? "allreduce of nothing" : described("allreduce", tensors.front()),
      .timeout = timeout_of(opts.timeout)};
  if (chunks.size() > 1) {
    operation.start_chunk = [parts, chunks, reduce, next = std::size_t{0}](MPI_Comm comm, Requests& requests) mutable {
      reduce(chunks[next++], comm, requests);
      return next < chunks.size();
    };
  } else {
    operation.start = [parts, chunks, reduce](MPI_Comm comm, Requests& requests) {
      std::ranges::for_each(chunks, [&](const Chunk& chunk) { reduce(chunk, comm, requests); });
    };
  }
  auto finish = [this, parts, op = opts.reduceOp] {
    for (const Part& part : parts) {
      average(part.tensor.host(), op);
      part.tensor.write_back();
    }
  };
  return submit({.type = type, .operation = std::move(operation), .results = tensors, .finish = std::move(finish)});
}

WorkPtr MpiBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const auto root = static_cast<int>(opts.rootRank);
  const std::string name = described("broadcast", only(tensors, "broadcast")) + " from rank " + std::to_string(root);
  if (gpu_ && gpu_->takes(tensors, Reduction::kSum)) {
    return submit_on_gpu(c10d::OpType::BROADCAST, name, opts.timeout, gpu_->broadcast(tensors.front(), root), tensors);
  }
  const HostTensor tensor(tensors.front(), root == getRank() ? Contents::kNeeded : Contents::kOverwritten);
  auto start = [this, tensor, root](MPI_Comm comm, Requests& requests) {
    const auto bytes = static_cast<std::int64_t>(tensor.host().nbytes());
    in_chunks(bytes, options_.chunk_bytes, [&](std::int64_t first, int count) {
      check_mpi(MPI_Ibcast(tensor.data() + first, count, MPI_BYTE, root, comm, &add(requests)), "MPI_Ibcast");
    });
  };
  return submit(
      {.type = c10d::OpType::BROADCAST,
       .operation = {.name = name, .timeout = timeout_of(opts.timeout), .start = std::move(start)},
       .results = tensors,
       .finish = [tensor] { tensor.write_back(); }});
}

WorkPtr MpiBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  check_shares(output, input, getSize(), "allgather");
  if (gpu_ && gpu_->takes({output, input}, Reduction::kSum)) {
    return submit_on_gpu(
        c10d::OpType::_ALLGATHER_BASE,
        described("allgather", input),
        opts.timeout,
        gpu_->all_gather(output, input),
        {output});
  }
  const HostTensor all(output, Contents::kOverwritten);
  const HostTensor mine = input_apart_from(input, output);
  auto start = [this, all, mine](MPI_Comm comm, Requests& requests) {
    const std::size_t share = mine.host().nbytes();
    in_chunks(static_cast<std::int64_t>(share), options_.chunk_bytes, [&](std::int64_t first, int count) {
      with_bytes_of_every_share(count, share, "MPI_Iallgather", [&](MPI_Datatype part) {
        char* const to = all.data() + first;
        return MPI_Iallgather(mine.data() + first, count, MPI_BYTE, to, 1, part, comm, &add(requests));
      });
    });
  };
  return submit(
      {.type = c10d::OpType::_ALLGATHER_BASE,
       .operation =
           {.name = described("allgather", input), .timeout = timeout_of(opts.timeout), .start = std::move(start)},
       .results = {output},
       .finish = [all] { all.write_back(); }});
}

WorkPtr MpiBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const at::Tensor& input = only(inputs, "allgather");
  if (outputs.size() != 1 || outputs.front().size() != static_cast<std::size_t>(getSize())) {
    throw std::invalid_argument("allgather needs one list of " + std::to_string(getSize()) + " output tensors");
  }
  for (const at::Tensor& output : outputs.front()) {
    check_shares(output, input, 1, "allgather");
  }
  at::Tensor flat = at::empty({getSize(), input.numel()}, input.options().requires_grad(false));
  at::Tensor flat_input = input.detach();
  const auto gathered = _allgather_base(flat, flat_input, opts);
  auto work = c10::make_intrusive<MpiWork>(getRank(), c10d::OpType::ALLGATHER, outputs.front());
  gathered->getFuture()->addCallback([work, flat, to = outputs.front()](c10::ivalue::Future& future) {
    if (future.hasError()) {
      work->fail(future.exception_ptr());
      return;
    }
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i].copy_(flat[static_cast<std::int64_t>(i)].view_as(to[i]));
    }
    work->complete(MPI_ANY_SOURCE);
  });
  return work;
}

WorkPtr MpiBackend::alltoall_base(
    at::Tensor& output,
    at::Tensor& input,
    std::vector<std::int64_t>& output_splits,
    std::vector<std::int64_t>& input_splits,
    const c10d::AllToAllOptions& opts) {
  check_shares(output, input, 1, "alltoall");
  if (!output_splits.empty() || !input_splits.empty() || input.numel() % getSize() != 0) {
    throw std::invalid_argument(
        described("alltoall", input) + " among " + std::to_string(getSize()) + " ranks; permitted: equal shares");
  }
  if (gpu_ && gpu_->takes({output, input}, Reduction::kSum)) {
    return submit_on_gpu(
        c10d::OpType::ALLTOALL_BASE,
        described("alltoall", input),
        opts.timeout,
        gpu_->all_to_all(output, input),
        {output});
  }
  const HostTensor all(output, Contents::kOverwritten);
  const HostTensor mine = input_apart_from(input, output);
  auto start = [this, all, mine](MPI_Comm comm, Requests& requests) {
    const std::size_t share = mine.host().nbytes() / static_cast<std::size_t>(getSize());
    in_chunks(static_cast<std::int64_t>(share), options_.chunk_bytes, [&](std::int64_t first, int count) {
      with_bytes_of_every_share(count, share, "MPI_Ialltoall", [&](MPI_Datatype part) {
        return MPI_Ialltoall(mine.data() + first, 1, part, all.data() + first, 1, part, comm, &add(requests));
      });
    });
  };
  return submit(
      {.type = c10d::OpType::ALLTOALL_BASE,
       .operation =
           {.name = described("alltoall", input), .timeout = timeout_of(opts.timeout), .start = std::move(start)},
       .results = {output},
       .finish = [all] { all.write_back(); }});
}

WorkPtr MpiBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  check_shares(input, output, getSize(), "reduce_scatter");
  const HostTensor mine(output, Contents::kOverwritten);
  const HostTensor all = input_apart_from(input, output);
  const auto element = input.scalar_type();
  const MPI_Datatype type = mpi_type(element);
  const MPI_Op operation = reductions_.operation(reduction_of(opts.reduceOp), element);
  // A reduction to each rank rather than MPI_Ireduce_scatter, which cannot take a chunk of every share.
  auto start = [this, mine, all, type, operation](MPI_Comm comm, Requests& requests) {
    const std::int64_t share = mine.host().numel();
    const std::int64_t width = mine.host().element_size();
    for (int root = 0; root < getSize(); ++root) {
      in_chunks(share, elements_per_chunk(mine.host()), [&](std::int64_t first, int count) {
        const char* from = all.data() + ((root * share + first) * width);
        char* to = root == getRank() ? mine.data() + (first * width) : nullptr;
        check_mpi(MPI_Ireduce(from, to, count, type, operation, root, comm, &add(requests)), "MPI_Ireduce");
      });
    }
  };
  return submit(
      {.type = c10d::OpType::_REDUCE_SCATTER_BASE,
       .operation =
           {.name = described("reduce_scatter", input), .timeout = timeout_of(opts.timeout), .start = std::move(start)},
       .results = {output},
       .finish = [this, mine, op = opts.reduceOp] {
         average(mine.host(), op);
         mine.write_back();
       }});
}

WorkPtr MpiBackend::reduce_scatter(
    Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& opts) {
  at::Tensor output = only(outputs, "reduce_scatter");
  if (inputs.size() != 1 || inputs.front().size() != static_cast<std::size_t>(getSize())) {
    throw std::invalid_argument("reduce_scatter needs one list of " + std::to_string(getSize()) + " input tensors");
  }
  const at::NoGradGuard no_grad;
  Tensors shares;
  for (const at::Tensor& share : inputs.front()) {
    shares.push_back(share.reshape(-1));
  }
  at::Tensor flat = at::cat(shares);
  return _reduce_scatter_base(output, flat, opts);
}

WorkPtr MpiBackend::barrier(const c10d::BarrierOptions& opts) {
  return submit(
      {.type = c10d::OpType::BARRIER,
       .operation = {
           .name = "barrier", .timeout = timeout_of(opts.timeout), .start = [](MPI_Comm comm, Requests& requests) {
             check_mpi(MPI_Ibarrier(comm, &add(requests)), "MPI_Ibarrier");
           }}});
}

WorkPtr MpiBackend::send(Tensors& tensors, int destination, int tag) {
  const HostTensor tensor(only(tensors, "send"), Contents::kNeeded);
  auto start = [tensor, destination, tag](MPI_Comm comm, Requests& requests) {
    const auto bytes = static_cast<std::int64_t>(tensor.host().nbytes());
    in_chunks(bytes, kMaxMessageBytes, [&](std::int64_t first, int count) {
      check_mpi(MPI_Isend(tensor.data() + first, count, MPI_BYTE, destination, tag, comm, &add(requests)), "MPI_Isend");
    });
  };
  return submit(
      {.type = c10d::OpType::SEND,
       .operation = {
           .name = described("send", tensors.front()) + " to rank " + std::to_string(destination),
           .partners = Partners::kOne,
           .peer = destination,
           .timeout = timeout_,
           .start = std::move(start)}});
}

WorkPtr MpiBackend::receive(const Tensors& tensors, int source, int tag, c10d::OpType type) {
  const HostTensor tensor(only(tensors, "recv"), Contents::kOverwritten);
  const auto bytes = static_cast<std::int64_t>(tensor.host().nbytes());
  const bool any = source == MPI_ANY_SOURCE;
  if (any && bytes > kMaxMessageBytes) {
    throw std::invalid_argument(
        "size of a message from any source is " + std::to_string(bytes) + " bytes; permitted: up to " +
        std::to_string(kMaxMessageBytes));
  }
  auto start = [tensor, bytes, source, tag](MPI_Comm comm, Requests& requests) {
    in_chunks(bytes, kMaxMessageBytes, [&](std::int64_t first, int count) {
      check_mpi(MPI_Irecv(tensor.data() + first, count, MPI_BYTE, source, tag, comm, &add(requests)), "MPI_Irecv");
    });
  };
  return submit(
      {.type = type,
       .operation =
           {.name =
                described("recv", tensors.front()) + " from " + (any ? "any rank" : "rank " + std::to_string(source)),
            .partners = any ? Partners::kAny : Partners::kOne,
            .peer = source,
            .timeout = timeout_,
            .start = std::move(start)},
       .results = tensors,
       .finish = [tensor] { tensor.write_back(); }});
}

WorkPtr MpiBackend::recv(Tensors& tensors, int source, int tag) {
  return receive(tensors, source, tag, c10d::OpType::RECV);
}

WorkPtr MpiBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, MPI_ANY_SOURCE, tag, c10d::OpType::RECVANYSOURCE);
}

}  // namespace

void MpiBackendOptions::validate() const {
  if (timeout.count() <= 0) {
    throw std::invalid_argument("timeout is " + std::to_string(timeout.count()) + " ms; permitted: above 0");
  }
  if (chunk_bytes < 1024 || chunk_bytes > kMaxMessageBytes) {
    throw std::invalid_argument(
        "chunk_bytes is " + std::to_string(chunk_bytes) + "; permitted: 1024 to " + std::to_string(kMaxMessageBytes));
  }
}

c10::intrusive_ptr<c10d::Backend> make_mpi_backend(MPI_Comm comm, const MpiBackendOptions& options) {
  options.validate();
  auto progress = std::make_unique<ProgressThread>(comm, options.backoff, options.watch);
  std::string refusal;
  auto gpu = GpuCollectives::make(comm, options.gpu, options.timeout, refusal);
  if (!gpu && !refusal.empty() && options.warn) {
    options.warn("gradients go through host memory and MPI: " + refusal);
  }
  return c10::make_intrusive<MpiBackend>(std::move(gpu), std::move(progress), options);
}

bool uses_nccl(c10d::Backend& backend) {
  return dynamic_cast<MpiBackend&>(backend).uses_nccl();
}

std::vector<Peer> suspects(c10d::Backend& backend) {
  return dynamic_cast<MpiBackend&>(backend).suspects();
}

const std::vector<Peer>& peers_of(c10d::Backend& backend) {
  return dynamic_cast<MpiBackend&>(backend).peers();
}

c10::intrusive_ptr<c10d::ProcessGroup> make_group(const c10::intrusive_ptr<c10d::Backend>& backend) {
  constexpr auto kType = c10d::ProcessGroup::BackendType::CUSTOM;
  auto group = c10::make_intrusive<c10d::ProcessGroup>(
      c10::make_intrusive<c10d::HashStore>(), backend->getRank(), backend->getSize());
  group->setBackend(c10::DeviceType::CPU, kType, backend);
  group->setBackend(c10::DeviceType::CUDA, kType, backend);
  group->setDefaultBackend(kType);
  return group;
}

}  // namespace isochron
