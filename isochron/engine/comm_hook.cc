#include "isochron/engine/comm_hook.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "isochron/engine/int8.h"

namespace isochron {
namespace {

using Tensors = std::vector<at::Tensor>;

class Bf16Hook : public c10d::CommHookInterface {
 public:
  explicit Bf16Hook(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_(std::move(group)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    Tensors tensors{bucket.getBuffer().to(at::kBFloat16)};
    return group_->allreduce(tensors)->getFuture();
  }

  // Divided after the sum, in float, so that the division does not round to bf16 as well.
  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result).to(at::kFloat).div_(group_->getSize());
  }

 private:
  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

// Futures of buckets hold their numbers and are complete at once. Behind the last bucket the parts leave; the rest is
// done when the Reducer asks for the first average, which is after this worker's last gradient was noted: nobody waits
// for others in its own time. That thread makes all calls, so that all workers make theirs in the same order.
class Int8Hook : public c10d::CommHookInterface {
 public:
  Int8Hook(const c10::intrusive_ptr<c10d::ProcessGroup>& group, std::shared_ptr<ErrorFeedback> feedback)
      : group_(group), feedback_(std::move(feedback)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    if (bucket.getIndex() == 0) {
      buckets_.clear();
      gradients_.clear();
    }
    buckets_.push_back(bucket.getBuffer());
    const Tensors parameters = bucket.getParameters();
    const Tensors values = bucket.getGradients();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto place = places_.try_emplace(parameters[i].unsafeGetTensorImpl(), places_.size()).first->second;
      gradients_.push_back({place, parameters[i], values[i].view({-1})});
    }
    if (bucket.isLast()) {
      send_parts();
    }
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    future->markCompleted(static_cast<std::int64_t>(bucket.getIndex()));
    return future;
  }

  at::Tensor parseHookResult(const c10::IValue& result) override {
    if (parts_under_way_) {
      average();
    }
    return buckets_[static_cast<std::size_t>(result.toInt())];
  }

 private:
  struct Gradient {
    std::size_t place;
    at::Tensor parameter;
    at::Tensor values;  // in the bucket
  };

  c10d::Backend& backend() const { return *group_->getBackend(buckets_.front().device().type()); }

  void send_parts() {
    const at::NoGradGuard no_grad;
    std::ranges::sort(gradients_, {}, &Gradient::place);
    parameters_.clear();
    for (const Gradient& gradient : gradients_) {
      parameters_.push_back(gradient.parameter);
    }
    const at::Tensor all = feedback_->of(parameters_);
    std::int64_t first = 0;
    for (const Gradient& gradient : gradients_) {
      all.narrow(0, first, gradient.values.numel()).add_(gradient.values);
      first += gradient.values.numel();
    }
    const std::int64_t workers = group_->getSize();
    const std::int64_t blocks = (first + kInt8Block * workers - 1) / (kInt8Block * workers);
    rows_ = at::constant_pad_nd(all, {0, blocks * kInt8Block * workers - first}).view({workers, -1});
    packed_ = pack_int8(rows_);
    parts_ = at::empty_like(packed_);
    std::vector<std::int64_t> equal;
    parts_under_way_ = backend().alltoall_base(parts_, packed_, equal, equal);
  }

  void average() {
    const at::NoGradGuard no_grad;
    const std::int64_t workers = group_->getSize();
    const std::int64_t rank = group_->getRank();
    const at::ScalarType type = rows_.scalar_type();
    const at::Tensor errors = rows_ - unpack_int8(packed_, type);
    std::exchange(parts_under_way_, {})->wait();
    const at::Tensor received = unpack_int8(parts_, type);
    received[rank].copy_(rows_[rank]);
    const at::Tensor mean = received.sum({0}, /*keepdim=*/true) / static_cast<double>(workers);
    at::Tensor mine = pack_int8(mean);
    at::Tensor of_all = at::empty({workers, mine.size(1)}, mine.options());
    const auto gathered = backend()._allgather_base(of_all, mine);
    errors.narrow(0, rank, 1).copy_((mean - unpack_int8(mine, type)) * static_cast<double>(workers));
    errors.nan_to_num_(0.0, 0.0, 0.0);  // of a step without finite numbers nothing is owed
    feedback_->set(parameters_, errors.view({-1}));
    gathered->wait();
    split(unpack_int8(of_all, type).view({-1}));
  }

  // Into the buckets themselves: the Reducer takes what it gets for the start of a storage, so a part will not do.
  void split(const at::Tensor& average) {
    std::int64_t first = 0;
    for (const Gradient& gradient : gradients_) {
      gradient.values.copy_(average.narrow(0, first, gradient.values.numel()));
      first += gradient.values.numel();
    }
    rows_.reset();
    packed_.reset();
    parts_.reset();
  }

  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
  const std::shared_ptr<ErrorFeedback> feedback_;

  // The place of every parameter among the others, in the order of the first step. The Reducer changes its buckets
  // after that step: a job that goes on and one that is restored would else cut other blocks, and round otherwise.
  std::map<const c10::TensorImpl*, std::size_t> places_;

  // The buckets so far; in the end they hold the averages.
  Tensors buckets_;
  std::vector<Gradient> gradients_;  // by place, once all are there
  Tensors parameters_;               // the same

  // A row for every worker: what it gets of this worker, and as it travels; and what this one gets.
  at::Tensor rows_;
  at::Tensor packed_;
  at::Tensor parts_;
  c10::intrusive_ptr<c10d::Work> parts_under_way_;
};

}  // namespace

std::unique_ptr<c10d::CommHookInterface> make_comm_hook(
    Compression compression,
    const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const std::shared_ptr<ErrorFeedback>& feedback) {
  switch (compression) {
    case Compression::kNone:
      return nullptr;
    case Compression::kBf16:
      return std::make_unique<Bf16Hook>(group);
    case Compression::kInt8:
      return std::make_unique<Int8Hook>(group, feedback);
  }
  return nullptr;
}

}  // namespace isochron
