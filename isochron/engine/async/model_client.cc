#include "isochron/engine/async/model_client.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "isochron/core/error.h"

namespace isochron {
namespace {

bool is_finite(const at::Tensor& gradient) {
  return std::isfinite(gradient.sum().item<double>()) || gradient.isfinite().all().item<bool>();
}

server::Bytes sent_bytes(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace

// PyTorch calls it when a parameter's gradient is complete.
class ModelClient::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(ModelClient& client, std::size_t slot) : client_(client), slot_(slot) {}
  void operator()(const torch::autograd::Variable& /*parameter*/) override { client_.take_gradient(slot_); }

 private:
  ModelClient& client_;
  const std::size_t slot_;
};

ModelClient::ModelClient(TensorLayout layout)
    : layout_(std::move(layout)),
      values_(layout_.make_strips()),
      gradients_(layout_.make_strips()),
      leaving_(layout_.chunks.size()),
      missing_(layout_.chunks.size()),
      has_gradient_(layout_.slots.size()) {
  adopt_parameters();
  for (std::size_t slot = 0; slot < layout_.slots.size(); ++slot) {
    chunks_of_.push_back(layout_.chunks_of(slot));
    torch::autograd::impl::set_post_acc_grad_hooks(layout_.parameters[slot], std::make_unique<Hook>(*this, slot));
  }
}

ModelClient::~ModelClient() {
  for (const at::Tensor& parameter : layout_.parameters) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }
}

void ModelClient::adopt_parameters() {
  const at::NoGradGuard no_grad;
  for (std::size_t slot = 0; slot < layout_.slots.size(); ++slot) {
    const at::Tensor parameter = layout_.parameters[slot];
    const at::Tensor view = layout_.slot_of(values_, slot);
    view.copy_(parameter);
    if (parameter.device().is_cpu()) {
      parameter.set_data(view);
    }
  }
}

std::vector<server::Space> ModelClient::places() const {
  std::vector<server::Space> places;
  places.reserve(values_.size());
  for (const at::Tensor& strip : values_) {
    places.emplace_back(static_cast<std::byte*>(strip.mutable_data_ptr()), strip.nbytes());
  }
  return places;
}

void ModelClient::take_values() {
  const at::NoGradGuard no_grad;
  for (std::size_t slot = 0; slot < layout_.slots.size(); ++slot) {
    const at::Tensor parameter = layout_.parameters[slot];
    if (!parameter.device().is_cpu()) {
      parameter.copy_(layout_.slot_of(values_, slot), /*non_blocking=*/true);
    }
  }
}

void ModelClient::begin_push(server::ParameterClient& client, bool only_finite) {
  std::ranges::fill(missing_, std::size_t{0});
  for (const auto& chunks : chunks_of_) {
    for (const std::size_t chunk : chunks) {
      ++missing_[chunk];
    }
  }
  has_gradient_.assign(layout_.slots.size(), false);
  only_finite_ = only_finite;
  finite_ = true;
  failure_ = nullptr;
  client_ = &client;
}

void ModelClient::take_gradient(std::size_t slot) {
  if (client_ == nullptr || has_gradient_[slot]) {
    return;
  }
  try {
    take(slot, layout_.parameters[slot].grad());
  } catch (...) {
    failure_ = std::current_exception();  // autograd cannot take it
  }
}

// Chunks that lie within one parameter leave from its gradient as it is; where several meet, they are joined in the
// strip.
void ModelClient::take(std::size_t slot_number, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  const ParameterSlot& slot = layout_.slots[slot_number];
  const at::Tensor flat = usable(gradient, layout_.types[slot.strip]);
  for (const std::size_t number : chunks_of_[slot_number]) {
    const Chunk& chunk = layout_.chunks[number];
    const std::int64_t first = std::max(chunk.first, slot.first);
    const std::int64_t size = std::min(chunk.last, slot.last) - first;
    if (flat.defined() && size == chunk.size()) {
      leaving_[number] = flat.narrow(0, first - slot.first, size);
      continue;
    }
    const at::Tensor place = gradients_[slot.strip].narrow(0, first, size);
    if (flat.defined()) {
      place.copy_(flat.narrow(0, first - slot.first, size));
    } else {
      place.zero_();
    }
    leaving_[number] = layout_.chunk_of(gradients_, number);
  }
  count_in(slot_number);
}

// Flat and on the CPU; undefined: it counts as 0.
at::Tensor ModelClient::usable(const at::Tensor& gradient, at::ScalarType type) {
  if (!gradient.defined()) {
    return {};
  }
  if (only_finite_ && !is_finite(gradient)) {
    finite_ = false;
    return {};
  }
  return gradient.to(at::kCPU, type).reshape({-1});
}

void ModelClient::count_in(std::size_t slot) {
  has_gradient_[slot] = true;
  for (const std::size_t chunk : chunks_of_[slot]) {
    if (--missing_[chunk] > 0) {
      continue;
    }
    if (failure_) {
      client_->keep(chunk, sent_bytes(leaving_[chunk]));
      continue;
    }
    try {
      client_->send(chunk, sent_bytes(leaving_[chunk]));
    } catch (const PeerError&) {  // its successor sends it
      failure_ = std::current_exception();
    }
  }
}

bool ModelClient::send_rest() {
  for (std::size_t slot = 0; client_ != nullptr && slot < layout_.slots.size(); ++slot) {
    if (!has_gradient_[slot]) {
      take(slot, layout_.parameters[slot].grad());
    }
  }
  client_ = nullptr;
  if (failure_) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  return finite_;
}

}  // namespace isochron
