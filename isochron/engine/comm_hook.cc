#include "isochron/engine/comm_hook.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

namespace isochron {
namespace {

class Bf16Hook : public c10d::CommHookInterface {
 public:
  explicit Bf16Hook(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_(std::move(group)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    std::vector<at::Tensor> tensors{bucket.getBuffer().to(at::kBFloat16)};
    return group_->allreduce(tensors)->getFuture();
  }

  // Divided after the sum, in float, so that the division does not round to bf16 as well.
  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result).to(at::kFloat).div_(group_->getSize());
  }

 private:
  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace

std::unique_ptr<c10d::CommHookInterface> make_comm_hook(
    Compression compression, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  return compression == Compression::kBf16 ? std::make_unique<Bf16Hook>(group) : nullptr;
}

}  // namespace isochron
