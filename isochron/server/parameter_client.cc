#include "isochron/server/parameter_client.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "isochron/comm/mpi_call.h"
#include "isochron/core/error.h"

namespace isochron::server {
namespace {

bool is_finite(const at::Tensor& gradient) {
  return std::isfinite(gradient.sum().item<double>()) || gradient.isfinite().all().item<bool>();
}

}  // namespace

// PyTorch calls it when a parameter's gradient is complete.
class ParameterClient::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(ParameterClient& client, std::size_t slot) : client_(client), slot_(slot) {}
  void operator()(const torch::autograd::Variable& /*parameter*/) override { client_.take_gradient(slot_); }

 private:
  ParameterClient& client_;
  const std::size_t slot_;
};

ParameterClient::ParameterClient(Channel& channel, Layout layout, std::vector<Peer> servers)
    : channel_(&channel),
      layout_(std::move(layout)),
      servers_(std::move(servers)),
      values_(layout_.make_strips()),
      gradients_(layout_.make_strips()),
      pulls_(layout_.chunks.size()),
      pushes_(layout_.chunks.size()),
      leaving_(layout_.chunks.size()),
      answers_(layout_.chunks.size()),
      missing_(layout_.chunks.size()),
      has_gradient_(layout_.slots.size()) {
  adopt_parameters();
  for (std::size_t slot = 0; slot < layout_.slots.size(); ++slot) {
    chunks_of_.push_back(layout_.chunks_of(slot));
    torch::autograd::impl::set_post_acc_grad_hooks(layout_.parameters[slot], std::make_unique<Hook>(*this, slot));
  }
}

ParameterClient::~ParameterClient() {
  for (const at::Tensor& parameter : layout_.parameters) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }
}

void ParameterClient::adopt_parameters() {
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

void ParameterClient::start_pull(PullHeader pull) {
  pulling_from_.clear();
  for (std::size_t chunk = 0; chunk < layout_.chunks.size(); ++chunk) {
    pull.chunk = static_cast<std::int64_t>(chunk);
    pulls_[chunk] = encode(pull);
    const at::Tensor values = layout_.chunk_of(values_, chunk);
    pulling_from_.insert(pulling_from_.end(), 2, server_of(chunk));
    check_mpi(
        MPI_Irecv(
            values.mutable_data_ptr(),
            static_cast<int>(values.nbytes()),
            MPI_BYTE,
            server_of(chunk).rank,
            kFirstValuesTag + static_cast<int>(chunk),
            channel_->expected(),
            &pulling_.emplace_back(MPI_REQUEST_NULL)),
        "MPI_Irecv");
    check_mpi(
        MPI_Isend(
            pulls_[chunk].data(),
            static_cast<int>(pulls_[chunk].size()),
            MPI_BYTE,
            server_of(chunk).rank,
            kPullTag,
            channel_->requests(),
            &pulling_.emplace_back(MPI_REQUEST_NULL)),
        "MPI_Isend");
  }
}

void ParameterClient::finish_pull() {
  channel_->wait(pulling_, "pulling parameters", pulling_from_);
  const at::NoGradGuard no_grad;
  for (std::size_t slot = 0; slot < layout_.slots.size(); ++slot) {
    const at::Tensor parameter = layout_.parameters[slot];
    if (!parameter.device().is_cpu()) {
      parameter.copy_(layout_.slot_of(values_, slot), /*non_blocking=*/true);
    }
  }
}

void ParameterClient::begin_push(const PushHeader& push, const std::vector<double>& rates, bool only_finite) {
  ISO_CHECK(!pushing_, "a push begins before the last one has ended");
  std::ranges::fill(missing_, std::size_t{0});
  for (const auto& chunks : chunks_of_) {
    for (const std::size_t chunk : chunks) {
      ++missing_[chunk];
    }
  }
  has_gradient_.assign(layout_.slots.size(), false);
  PushHeader header = push;
  for (std::size_t chunk = 0; chunk < pushes_.size(); ++chunk) {
    header.chunk = static_cast<std::int64_t>(chunk);
    header.rate = push.rate * rates[layout_.strips[layout_.chunks[chunk].strip].group];
    pushes_[chunk] = encode(header);
  }
  only_finite_ = only_finite;
  finite_ = true;
  failure_ = nullptr;
  sent_now_ = 0;
  pushing_ = true;
}

void ParameterClient::take_gradient(std::size_t slot) {
  if (!pushing_ || has_gradient_[slot]) {
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
void ParameterClient::take(std::size_t slot_number, const at::Tensor& gradient) {
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
at::Tensor ParameterClient::usable(const at::Tensor& gradient, at::ScalarType type) {
  if (!gradient.defined()) {
    return {};
  }
  if (only_finite_ && !is_finite(gradient)) {
    finite_ = false;
    return {};
  }
  return gradient.to(at::kCPU, type).reshape({-1});
}

void ParameterClient::count_in(std::size_t slot) {
  has_gradient_[slot] = true;
  std::vector<std::size_t> complete;
  for (const std::size_t chunk : chunks_of_[slot]) {
    if (--missing_[chunk] == 0) {
      complete.push_back(chunk);
    }
  }
  if (!failure_) {  // else move_to() sends them
    std::ranges::for_each(complete, [this](std::size_t chunk) { send(chunk); });
  }
}

void ParameterClient::send(std::size_t chunk) {
  const at::Tensor& gradient = leaving_[chunk];
  const int rank = server_of(chunk).rank;
  pushing_to_.insert(pushing_to_.end(), 3, server_of(chunk));
  const auto next = [this] { return &requests_.emplace_back(MPI_REQUEST_NULL); };
  check_mpi(
      MPI_Irecv(answers_[sent_now_].data(), kPushAnswerBytes, MPI_BYTE, rank, kAnswerTag, channel_->expected(), next()),
      "MPI_Irecv");
  check_mpi(
      MPI_Isend(
          pushes_[chunk].data(),
          static_cast<int>(pushes_[chunk].size()),
          MPI_BYTE,
          rank,
          kPushTag,
          channel_->requests(),
          next()),
      "MPI_Isend");
  check_mpi(
      MPI_Isend(
          gradient.const_data_ptr(),
          static_cast<int>(gradient.nbytes()),
          MPI_BYTE,
          rank,
          kGradientTag,
          channel_->expected(),
          next()),
      "MPI_Isend");
  ++sent_now_;
}

ParameterClient::Pushed ParameterClient::finish_push() {
  ISO_CHECK(pushing_, "a push ends that has not begun");
  if (failure_) {
    channel_->fail();
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  for (std::size_t slot = 0; slot < layout_.slots.size(); ++slot) {
    if (!has_gradient_[slot]) {
      take(slot, layout_.parameters[slot].grad());
    }
  }
  channel_->wait(requests_, "pushing a gradient", pushing_to_);
  pushing_to_.clear();
  forget_push();
  Pushed pushed{.finite = finite_};
  for (const auto& bytes : answers_) {
    const auto answer = decode<PushAnswer>({bytes.data(), bytes.size()});
    pushed.staleness = std::max(pushed.staleness, answer.staleness);
    sent_ += answer.staleness >= 0 ? 1 : 0;
  }
  return pushed;
}

void ParameterClient::abandon() {
  Channel::drain(pulling_);
  Channel::drain(requests_);
  pushing_to_.clear();
}

void ParameterClient::forget_push() {
  leaving_.assign(layout_.chunks.size(), {});
  pushing_ = false;
}

void ParameterClient::move_to(Channel& channel, const std::vector<int>& server_of, std::vector<Peer> servers) {
  channel_ = &channel;
  servers_ = std::move(servers);
  for (std::size_t chunk = 0; chunk < layout_.chunks.size(); ++chunk) {
    layout_.chunks[chunk].server = server_of[chunk];
  }
  failure_ = nullptr;
  sent_now_ = 0;
  for (std::size_t chunk = 0; pushing_ && chunk < layout_.chunks.size(); ++chunk) {
    if (missing_[chunk] == 0) {
      send(chunk);
    }
  }
}

}  // namespace isochron::server
