#include "isochron/engine/sync_batch_norm.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/ops/_batch_norm_impl_index_native.h>
#include <ATen/ops/batch_norm_native.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/jit/python/update_graph_executor_opt.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/library.h>

#include "isochron/comm/mpi_backend.h"
#include "isochron/core/error.h"
#include "isochron/core/peer_error.h"

namespace isochron {

using Clock = std::chrono::steady_clock;
using Tensors = std::vector<at::Tensor>;

// What the batch norms of a job share. Alive as long as a backward pass may need it.
class BatchNormExchange : public torch::CustomClassHolder {
 public:
  using Waits = SyncBatchNorm::Waits;

  BatchNormExchange(c10::intrusive_ptr<c10d::Backend> backend, SyncBatchNorm::OnWait on_wait)
      : backend_(std::move(backend)), on_wait_(std::move(on_wait)) {}

  // Who listens is gone.
  void stop_telling() { on_wait_ = {}; }

  int workers() const { return backend_->getSize(); }
  bool is_from_gpu_to_gpu() const { return uses_nccl(*backend_); }

  // Row k is worker k's `mine`, in host memory or, where those are exchanged, on a GPU; after a failure there is one
  // row.
  at::Tensor all_gather(at::Tensor mine) {
    at::Tensor all = at::empty({workers(), mine.numel()}, mine.options());
    return wait(mine.device(), [&] { return backend_->_allgather_base(all, mine); }) ? all : mine.unsqueeze(0);
  }

  // After a failure it is `mine`. In host memory it takes one hop, and is added up in the same order everywhere.
  at::Tensor all_reduce(const at::Tensor& mine) {
    if (mine.device().is_cpu()) {
      return all_gather(mine.flatten()).sum(0).view(mine.sizes());
    }
    Tensors sums{mine.clone()};
    return wait(mine.device(), [&] { return backend_->allreduce(sums); }) ? sums.front() : mine;
  }

  bool has_failed() const { return failed_; }
  // A GPU that is behind the program is not waited for: the gradients come by the same way, after it.
  void rethrow_failure() {
    const std::lock_guard lock(mutex_);
    for (const auto& work : works_) {
      if (work->isCompleted() && !work->isSuccess()) {
        std::rethrow_exception(work->exception());
      }
    }
    std::erase_if(works_, [](const auto& work) { return work->isCompleted(); });
    if (failed_) {
      std::rethrow_exception(failure_);
    }
  }

  Waits take_waits() {
    Waits waits{.time = Clock::duration(time_.exchange(0)), .count = count_.exchange(0)};
    const std::lock_guard lock(mutex_);
    for (const auto& [from, to] : std::exchange(stream_waits_, {})) {
      if (to.query()) {
        const std::chrono::duration<double, std::milli> time(from.elapsedTime(to));
        waits.time += std::chrono::duration_cast<Clock::duration>(time);
      }
    }
    return waits;
  }

 private:
  // From when on a stream waited, and until when.
  struct StreamWait {
    c10::Event from;
    c10::Event to;
  };

  // False if it fails. On a GPU it is the stream that waits, so that a failure may show later.
  template <typename Collective>
  bool wait(const c10::Device& device, const Collective& collective) {
    if (failed_) {
      return false;
    }
    const auto start = Clock::now();
    try {
      if (device.is_cpu()) {
        const auto work = collective();
        tell(true);
        const auto over = c10::make_scope_exit([this] { tell(false); });
        work->wait();
        time_ += (Clock::now() - start).count();
      } else {
        queue(device, collective);
      }
    } catch (const PeerError&) {
      failure_ = std::current_exception();
      failed_ = true;
    }
    ++count_;
    return !failed_;
  }

  void tell(bool waiting) const {
    if (on_wait_) {
      on_wait_(waiting);
    }
  }

  template <typename Collective>
  void queue(const c10::Device& device, const Collective& collective) {
    const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    StreamWait wait{
        c10::Event(device.type(), c10::EventFlag::BACKEND_DEFAULT),
        c10::Event(device.type(), c10::EventFlag::BACKEND_DEFAULT)};
    wait.from.record(stream);
    const auto work = collective();
    work->blockCurrentStream();
    wait.to.record(stream);
    const std::lock_guard lock(mutex_);
    works_.push_back(work);
    stream_waits_.push_back(std::move(wait));
  }

  const c10::intrusive_ptr<c10d::Backend> backend_;
  SyncBatchNorm::OnWait on_wait_;
  std::atomic<Clock::rep> time_ = 0;  // that the host waited
  std::atomic<std::int64_t> count_ = 0;
  std::mutex mutex_;
  std::vector<StreamWait> stream_waits_;
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;  // that streams wait for
  std::exception_ptr failure_;                         // written before failed_
  std::atomic<bool> failed_ = false;
};

namespace {

using Exchange = c10::intrusive_ptr<BatchNormExchange>;
using OptionalTensor = std::optional<at::Tensor>;

// The innermost scope of this thread; null outside.
thread_local BatchNormExchange* active = nullptr;
thread_local bool active_counts = true;
thread_local bool active_all_count = false;

bool is_defined(const OptionalTensor& tensor) {
  return tensor && tensor->defined();
}

at::Tensor as_type_of(const at::Tensor& other, const OptionalTensor& tensor) {
  return is_defined(tensor) ? tensor->to(other.scalar_type()) : at::Tensor();
}

at::TensorOptions host_double() {
  return at::TensorOptions().dtype(at::kDouble).device(at::kCPU);
}

struct Statistics {
  at::Tensor mean;  // both [C]; float unless the input is double
  at::Tensor variance;
  double count = 0;  // values per channel, of all workers
};

// Combines rows of C means, C variances and a count (Chan et al. 1979), in rank order and without contraction: the same
// bits on all workers.
Statistics combine(const at::Tensor& rows, const at::TensorOptions& options) {
  const std::int64_t channels = (rows.size(1) - 1) / 2;
  const at::Tensor result = at::zeros({2, channels}, host_double());
  auto* const mean = result.mutable_data_ptr<double>();
  auto* const variance = mean + channels;
  double count = 0;
  for (std::int64_t worker = 0; worker < rows.size(0); ++worker) {
    const auto* const row = rows.const_data_ptr<double>() + (worker * rows.size(1));
    const double added = row[2 * channels];
    if (added == 0) {
      continue;
    }
    const double share = added / (count + added);
    for (std::int64_t c = 0; c < channels; ++c) {
      const double apart = row[c] - mean[c];
      mean[c] += apart * share;
      variance[c] += (row[channels + c] - variance[c] + apart * apart * (1 - share)) * share;
    }
    count += added;
  }
  const at::Tensor moved = result.to(options);
  return {.mean = moved[0], .variance = moved[1], .count = count};
}

Statistics global_statistics(const at::Tensor& input, bool counts, BatchNormExchange& exchange) {
  const std::int64_t channels = input.size(1);
  at::Tensor mine = at::zeros({2 * channels + 1}, host_double());
  if (counts && input.numel() > 0) {
    const auto [mean, variance] = at::batch_norm_update_stats(input, {}, {}, /*momentum=*/0);
    mine.narrow(0, 0, 2 * channels).copy_(at::cat({mean, variance}));
    mine[2 * channels] = input.numel() / channels;
  }
  const auto options = input.options().dtype(at::toOpMathType(input.scalar_type()));
  Statistics all = combine(exchange.all_gather(std::move(mine)), options);
  if (exchange.has_failed()) {
    all.count = std::max(all.count, 2.0);  // whatever comes of it, this step will not count
  }
  if (all.count < 2) {
    throw std::invalid_argument(
        "values per channel of a batch norm in training are " + std::to_string(std::llround(all.count)) +
        " over all workers; permitted: 2 or more");
  }
  return all;
}

struct Running {
  OptionalTensor mean;
  OptionalTensor variance;
  double momentum = 0;

  // As PyTorch does: the variance is the unbiased one.
  void update(const Statistics& batch) const {
    if (is_defined(mean)) {
      mean->mul_(1 - momentum).add_(batch.mean, momentum);
    }
    if (is_defined(variance)) {
      variance->mul_(1 - momentum).add_(batch.variance, momentum * batch.count / (batch.count - 1));
    }
  }
};

// (x - mean) / sqrt(variance + eps) * weight + bias per channel. The kernel takes parameters in the precision of the
// statistics only.
at::Tensor normalise(
    const at::Tensor& input,
    const OptionalTensor& weight,
    const OptionalTensor& bias,
    const at::Tensor& mean,
    const at::Tensor& variance,
    double eps) {
  return std::get<0>(at::native_batch_norm(
      input,
      as_type_of(mean, weight),
      as_type_of(mean, bias),
      mean,
      variance,
      /*training=*/false,
      /*momentum=*/0,
      eps));
}

// (w / s) (dy - (sum dy + xhat sum dy xhat) / N): per channel a multiple of dy and a line in x. A stand-in is not in
// the statistics, so the multiple alone remains.
at::Tensor gradient_of_input(
    const at::Tensor& gradient,
    const at::Tensor& input,
    const at::Tensor& weight,
    const Statistics& batch,
    double eps,
    const at::Tensor& sums,
    bool counts) {
  const at::Tensor inverse = (batch.variance.to(at::kDouble) + eps).rsqrt();
  const at::Tensor scale = weight.defined() ? inverse * weight : inverse;
  const at::Tensor through_statistics = scale * (counts ? -1 / batch.count : 0);
  const at::Tensor slope = through_statistics * inverse * sums[0];
  const at::Tensor offset = through_statistics * sums[1] - slope * batch.mean;
  const at::Tensor line =
      normalise(input, slope, offset, at::zeros_like(batch.mean), at::ones_like(batch.variance), /*eps=*/0);
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = input.size(1);
  return line.addcmul_(gradient, scale.to(batch.mean.scalar_type()).view(shape));
}

void refuse_second_derivatives() {
  if (at::GradMode::is_enabled()) {
    throw std::invalid_argument("create_graph is true; permitted with a synchronised batch norm: false");
  }
}

class SyncedBatchNorm : public torch::autograd::Function<SyncedBatchNorm> {
 public:
  static at::Tensor forward(
      torch::autograd::AutogradContext* context,
      const at::Tensor& input,
      const OptionalTensor& weight,
      const OptionalTensor& bias,
      const Running& running,
      double eps,
      bool counts,
      const Exchange& exchange) {
    const Statistics batch = global_statistics(input, counts, *exchange);
    running.update(batch);
    context->save_for_backward({input, weight.value_or(at::Tensor()), batch.mean, batch.variance});
    context->saved_data["has_bias"] = is_defined(bias);
    context->saved_data["eps"] = eps;
    context->saved_data["counts"] = counts;
    context->saved_data["count"] = batch.count;
    context->saved_data["exchange"] = c10::IValue::make_capsule(exchange);
    return normalise(input, weight, bias, batch.mean, batch.variance, eps);
  }

  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    refuse_second_derivatives();
    const Tensors saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const Statistics batch{saved[2], saved[3], context->saved_data["count"].toDouble()};
    const at::Tensor weight = as_type_of(batch.mean, saved[1]);
    const double eps = context->saved_data["eps"].toDouble();
    // With statistics held fixed: sum dy xhat and sum dy. On GPUs the saved form of them is asked for, and a weight,
    // though neither sum depends on it; on CPUs not.
    const auto [none, by_weight, by_bias] = at::native_batch_norm_backward(
        gradients[0],
        input,
        weight.defined() ? weight : at::ones_like(batch.mean),
        batch.mean,
        batch.variance,
        batch.mean,
        (batch.variance + eps).rsqrt(),
        /*train=*/false,
        eps,
        {false, true, true});
    at::Tensor by_input;
    if (context->needs_input_grad(0)) {
      const auto exchange =
          c10::static_intrusive_pointer_cast<BatchNormExchange>(context->saved_data["exchange"].toCapsule());
      const at::Tensor sums = exchange->all_reduce(at::stack({by_weight, by_bias}).to(host_double()));
      const bool counts = context->saved_data["counts"].toBool();
      by_input = gradient_of_input(gradients[0], input, weight, batch, eps, sums.to(input.device()), counts);
    }
    // What the layer does not have gets no gradient.
    return {
        by_input,
        weight.defined() ? by_weight : at::Tensor(),
        context->saved_data["has_bias"].toBool() ? by_bias : at::Tensor(),
        {},
        {},
        {},
        {}};
  }
};

at::Tensor in_a_layout_of_kernels(const at::Tensor& x) {
  const bool is_known =
      x.is_contiguous(at::MemoryFormat::ChannelsLast) || x.is_contiguous(at::MemoryFormat::ChannelsLast3d);
  return is_known ? x : x.contiguous();
}

// By the kernels of PyTorch's SyncBatchNorm, which read and write an input in its own precision and layout and weigh
// every worker's statistics by its count. On GPUs that exchange by NCCL, where every worker has samples.
class BatchNormByKernels : public torch::autograd::Function<BatchNormByKernels> {
 public:
  static at::Tensor forward(
      torch::autograd::AutogradContext* context,
      const at::Tensor& any_input,
      const OptionalTensor& weight,
      const OptionalTensor& bias,
      const Running& running,
      double eps,
      const Exchange& exchange) {
    const at::Tensor input = in_a_layout_of_kernels(any_input);
    const std::int64_t channels = input.size(1);
    const auto [my_mean, my_inverse] = at::batch_norm_stats(input, eps);
    const at::Tensor my_count = at::full({1}, input.numel() / channels, my_mean.options());
    const at::Tensor rows = exchange->all_gather(at::cat({my_mean, my_inverse, my_count}));
    const at::Tensor counts = rows.select(1, 2 * channels);
    const auto [mean, inverse] = at::batch_norm_gather_stats_with_counts(
        my_mean,
        rows.narrow(1, 0, channels),
        rows.narrow(1, channels, channels),
        running.mean,
        running.variance,
        running.momentum,
        eps,
        counts);
    context->save_for_backward({input, weight.value_or(at::Tensor()), mean, inverse, counts.to(at::kInt)});
    context->saved_data["has_bias"] = is_defined(bias);
    context->saved_data["exchange"] = c10::IValue::make_capsule(exchange);
    return at::batch_norm_elemt(input, weight, bias, mean, inverse, eps);
  }

  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    refuse_second_derivatives();
    const Tensors saved = context->get_saved_variables();
    const at::Tensor gradient = in_a_layout_of_kernels(gradients[0]);
    const auto [sum, sum_by_input, by_weight, by_bias] = at::batch_norm_backward_reduce(
        gradient,
        saved[0],
        saved[2],
        saved[3],
        saved[1],
        true,
        saved[1].defined(),
        context->saved_data["has_bias"].toBool());
    const auto exchange =
        c10::static_intrusive_pointer_cast<BatchNormExchange>(context->saved_data["exchange"].toCapsule());
    const Tensors sums = exchange->all_reduce(at::cat({sum, sum_by_input})).chunk(2);
    const at::Tensor by_input = at::batch_norm_backward_elemt(
        gradient, saved[0], saved[2], saved[3], as_type_of(saved[2], saved[1]), sums[0], sums[1], saved[4]);
    return {by_input, by_weight, by_bias, {}, {}, {}};
  }
};

// The running statistics are in the precision in which the kernels count. Every worker comes to the same answer.
bool have_kernels(const at::Tensor& input, const OptionalTensor& running) {
  return active->is_from_gpu_to_gpu() && active_all_count && input.is_cuda() && input.numel() > 0 &&
         (!is_defined(running) || running->scalar_type() == at::toOpMathType(input.scalar_type()));
}

void check_channels(const OptionalTensor& values, const char* name, const at::Tensor& input) {
  if (is_defined(values) && values->numel() != input.size(1)) {
    throw std::invalid_argument(
        std::string(name) + " of a batch norm has " + std::to_string(values->numel()) +
        " elements; permitted: " + std::to_string(input.size(1)) + ", one per channel of the input");
  }
}

at::Tensor batch_norm(
    const at::Tensor& input,
    const OptionalTensor& weight,
    const OptionalTensor& bias,
    const OptionalTensor& running_mean,
    const OptionalTensor& running_var,
    bool training,
    double momentum,
    double eps,
    bool cudnn_enabled) {
  if (active == nullptr || !training) {
    return at::native::batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled);
  }
  check_channels(weight, "weight", input);
  check_channels(bias, "bias", input);
  check_channels(running_mean, "running_mean", input);
  check_channels(running_var, "running_var", input);
  const Running running{running_mean, running_var, momentum};
  const Exchange exchange = Exchange::reclaim_copy(active);
  if (have_kernels(input, running_mean)) {
    return BatchNormByKernels::apply(input, weight, bias, running, eps, exchange);
  }
  return SyncedBatchNorm::apply(input, weight, bias, running, eps, active_counts, exchange);
}

// What TorchScript's optimiser makes of batch_norm. Nothing else calls it while a scope is alive.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, std::int64_t> batch_norm_impl_index(
    const at::Tensor& input,
    const OptionalTensor& weight,
    const OptionalTensor& bias,
    const OptionalTensor& running_mean,
    const OptionalTensor& running_var,
    bool training,
    double momentum,
    double eps,
    bool cudnn_enabled) {
  if (active != nullptr && training) {
    throw Error(
        "a TorchScript model was optimised before it trained, which hides its batch norms; call "
        "torch::jit::setGraphExecutorOptimize(false) before its first use");
  }
  return at::native::_batch_norm_impl_index(
      input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled);
}

// Once per process; without a scope nothing changes.
void take_over_batch_norm() {
  static const auto implement = [](c10::DispatchKey key) {
    torch::Library library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    library.impl("batch_norm", &batch_norm);
    library.impl("_batch_norm_impl_index", &batch_norm_impl_index);
    return library;
  };
  static const torch::Library cpu = implement(c10::DispatchKey::AutogradCPU);
  static const torch::Library cuda = implement(c10::DispatchKey::AutogradCUDA);
  // Else a lost peer's PeerError would leave TorchScript as a std::runtime_error.
  FLAGS_torch_jit_enable_rethrow_caught_exception = true;
}

}  // namespace

SyncBatchNorm::SyncBatchNorm(const c10::intrusive_ptr<c10d::ProcessGroup>& group, OnWait on_wait)
    : exchange_(c10::make_intrusive<BatchNormExchange>(group->getBackend(c10::DeviceType::CPU), std::move(on_wait))) {
  take_over_batch_norm();
}
SyncBatchNorm::~SyncBatchNorm() {
  exchange_->stop_telling();
}

SyncBatchNorm::Scope::Scope(const SyncBatchNorm& owner, bool counts, bool all_count)
    : outer_(active),
      outer_counts_(active_counts),
      outer_all_count_(active_all_count),
      optimised_(torch::jit::getGraphExecutorOptimize()) {
  if (owner.exchange_->workers() > 1) {
    active = owner.exchange_.get();
    active_counts = counts;
    active_all_count = all_count;
    torch::jit::setGraphExecutorOptimize(false);
  }
}

SyncBatchNorm::Scope::~Scope() {
  active = outer_;
  active_counts = outer_counts_;
  active_all_count = outer_all_count_;
  torch::jit::setGraphExecutorOptimize(optimised_);
}

void SyncBatchNorm::rethrow_failure() const {
  exchange_->rethrow_failure();
}

SyncBatchNorm::Waits SyncBatchNorm::take_waits() {
  return exchange_->take_waits();
}

}  // namespace isochron
