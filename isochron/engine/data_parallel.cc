#include "isochron/engine/data_parallel.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "isochron/engine/comm_hook.h"

namespace isochron {
namespace {

using Clock = std::chrono::steady_clock;
using Tensors = std::vector<at::Tensor>;

// Small enough not to delay the start, large enough not to be all latency.
constexpr std::int64_t kFirstBucketBytes = std::int64_t{1} << 20;

std::vector<std::vector<std::size_t>> initial_buckets(const Tensors& parameters, std::int64_t bucket_bytes) {
  const auto limit = static_cast<std::size_t>(bucket_bytes);
  const std::vector<std::size_t> limits{std::min(limit, std::size_t{kFirstBucketBytes}), limit};
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, limits));
  // Backward runs from the last parameter to the first.
  std::ranges::reverse(buckets);
  return buckets;
}

// Until the device has computed what this thread has given it: a GPU is behind the program.
void finish_computing(const c10::Device& device) {
  if (!device.is_cpu()) {
    c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
  }
}

}  // namespace

class DataParallel::State {
 public:
  State(
      Tensors parameters,
      const Tensors& buffers,
      const c10::intrusive_ptr<c10d::ProcessGroup>& group,
      const DataParallelOptions& options,
      Start start,
      std::shared_ptr<ErrorFeedback> feedback)
      : parameters_(std::move(parameters)), measure_moments_(options.measure_moments) {
    options.validate();
    if (start == Start::kBroadcast) {
      broadcast_model(parameters_, buffers, group, options);
    }
    reducer_ = std::make_shared<c10d::Reducer>(
        parameters_,
        initial_buckets(parameters_, options.bucket_bytes),
        group,
        /*expect_sparse_gradients=*/std::vector<bool>(parameters_.size(), false),
        options.bucket_bytes,
        options.find_unused_parameters,
        /*gradient_as_bucket_view=*/false,  // else the optimizer's zero_grad() throws
        /*param_names=*/std::unordered_map<std::size_t, std::string>{},
        std::min(options.bucket_bytes, kFirstBucketBytes),
        /*skip_all_reduce_unused_params=*/false,
        /*use_python_reducer=*/false,
        /*bucket_bytes_cap_list=*/std::vector<std::int64_t>{});
    // Where it looks for unused parameters and finds none it tells a logger so, without asking whether there is one.
    logger_ = std::make_shared<c10d::Logger>(reducer_);
    reducer_->set_logger(logger_);
    if (options.compression == Compression::kInt8 && !feedback) {
      feedback = std::make_shared<ErrorFeedback>(parameters_, group->getSize());
    }
    if (auto hook = make_comm_hook(options.compression, group, feedback)) {
      reducer_->register_comm_hook(std::move(hook));
    }
  }

  void begin_step() {
    weight_ = 0;
    reducer_->prepare_for_forward();
    reducer_->rebuild_buckets();
  }

  // Unless it is told to expect them, the Reducer ignores gradients.
  void accumulate(const at::Tensor& loss, double weight, const GradientOptions& options) {
    weight_ += weight;
    run(loss * weight, options);
  }

  BackwardResult backward(
      const at::Tensor& loss, double weight, const AtLastGradient& at_last_gradient, const GradientOptions& options) {
    BackwardResult result{.started = Clock::now()};
    weight_ += weight;
    const auto own_part_done = [&] {
      finish_computing(loss.device());
      result.last_gradient = Clock::now();
      result.local_square = weight_ > 0 ? square() / (weight_ * weight_) : 0;
      if (at_last_gradient) {
        at_last_gradient(result);
      }
    };
    const at::Tensor scaled = loss * weight;
    // This hook is the first thing that the backward pass runs. What it queues therefore comes before the Reducer's own
    // callback, which waits for the reductions and writes the averages over the local gradients.
    scaled.register_hook([&](const at::Tensor& /*gradient*/) {
      torch::autograd::Engine::get_default_engine().queue_callback(own_part_done);
    });
    reducer_->prepare_for_backward({loss});
    run(scaled, options);
    if (options.only_own) {
      finish_computing(loss.device());  // else a GPU would wait for the others in the time of the next pass
    }
    result.finished = Clock::now();
    result.global_square = square();
    return result;
  }

  // A sum is finite unless something in it is not, or it overflows; then every element is looked at.
  bool finite() const {
    const at::NoGradGuard no_grad;
    const Tensors all = gradients();
    if (all.empty()) {
      return true;
    }
    if (std::isfinite(at::stack(at::_foreach_norm(all, 1)).to(at::kDouble).sum().item<double>())) {
      return true;
    }
    return std::ranges::all_of(all, [](const at::Tensor& gradient) { return gradient.isfinite().all().item<bool>(); });
  }

 private:
  void run(const at::Tensor& scaled, const GradientOptions& options) const {
    torch::autograd::backward(
        {scaled}, {}, options.retain_graph, /*create_graph=*/false, options.only_own ? parameters_ : Tensors{});
  }

  // As they are now.
  Tensors gradients() const {
    Tensors gradients;
    for (const at::Tensor& parameter : parameters_) {
      if (parameter.grad().defined()) {
        gradients.push_back(parameter.grad());
      }
    }
    return gradients;
  }

  // The square of the norm of the gradients; 0 if nobody asked.
  double square() const {
    const at::NoGradGuard no_grad;
    const Tensors all = measure_moments_ ? gradients() : Tensors{};
    return all.empty() ? 0 : at::stack(at::_foreach_norm(all)).to(at::kDouble).square().sum().item<double>();
  }

  const Tensors parameters_;
  const bool measure_moments_;
  double weight_ = 0;  // of the step so far
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;
};

void broadcast_model(
    const Tensors& parameters,
    const Tensors& buffers,
    const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const DataParallelOptions& options) {
  c10d::verify_params_across_processes(group, parameters, std::nullopt);
  Tensors values;
  for (const Tensors& tensors : {parameters, buffers}) {
    std::ranges::transform(tensors, std::back_inserter(values), [](const at::Tensor& t) { return t.detach(); });
  }
  c10d::broadcast_coalesced(group, values, static_cast<std::size_t>(options.bucket_bytes));
}

DataParallel::DataParallel(
    Tensors parameters,
    const Tensors& buffers,
    const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const DataParallelOptions& options,
    Start start,
    std::shared_ptr<ErrorFeedback> feedback)
    : state_(std::make_unique<State>(std::move(parameters), buffers, group, options, start, std::move(feedback))) {
}
DataParallel::~DataParallel() = default;

void DataParallel::begin_step() {
  state_->begin_step();
}

bool DataParallel::finite() const {
  return state_->finite();
}

void DataParallel::accumulate(const at::Tensor& loss, double weight, const GradientOptions& options) {
  state_->accumulate(loss, weight, options);
}

BackwardResult DataParallel::backward(
    const at::Tensor& loss, double weight, const AtLastGradient& at_last_gradient, const GradientOptions& options) {
  return state_->backward(loss, weight, at_last_gradient, options);
}

}  // namespace isochron
