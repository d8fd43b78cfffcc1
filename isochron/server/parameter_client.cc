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

std::vector<at::Tensor> make_strips(const Layout& layout) {
  std::vector<at::Tensor> strips;
  strips.reserve(layout.strips.size());
  for (const Strip& strip : layout.strips) {
    strips.push_back(at::empty({strip.elements}, at::TensorOptions(strip.type)));
  }
  return strips;
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
      values_(make_strips(layout_)),
      gradients_(make_strips(layout_)),
      pulls_(layout_.pieces.size()),
      pushes_(layout_.pieces.size()),
      leaving_(layout_.pieces.size()),
      answers_(layout_.pieces.size()),
      missing_(layout_.pieces.size()),
      has_gradient_(layout_.slots.size()) {
  adopt_parameters();
  for (std::size_t slot = 0; slot < layout_.slots.size(); ++slot) {
    pieces_of_.push_back(layout_.pieces_of(layout_.slots[slot]));
    torch::autograd::impl::set_post_acc_grad_hooks(layout_.slots[slot].parameter, std::make_unique<Hook>(*this, slot));
  }
}

ParameterClient::~ParameterClient() {
  for (const Slot& slot : layout_.slots) {
    torch::autograd::impl::set_post_acc_grad_hooks(slot.parameter, nullptr);
  }
}

void ParameterClient::adopt_parameters() {
  const at::NoGradGuard no_grad;
  for (const Slot& slot : layout_.slots) {
    const at::Tensor view = part(values_, slot);
    view.copy_(slot.parameter);
    if (slot.parameter.device().is_cpu()) {
      at::Tensor(slot.parameter).set_data(view);
    }
  }
}

at::Tensor ParameterClient::part(const std::vector<at::Tensor>& strips, std::size_t piece) const {
  const Piece& at = layout_.pieces[piece];
  return strips[at.strip].narrow(0, at.first, at.size());
}

at::Tensor ParameterClient::part(const std::vector<at::Tensor>& strips, const Slot& slot) const {
  return strips[slot.strip].narrow(0, slot.first, slot.parameter.numel()).view(slot.parameter.sizes());
}

void ParameterClient::start_pull(WorkerId worker, std::int64_t rounds) {
  pulling_from_.clear();
  for (std::size_t piece = 0; piece < layout_.pieces.size(); ++piece) {
    pulls_[piece] = {.piece = static_cast<std::int64_t>(piece), .worker = worker, .rounds = rounds};
    const at::Tensor values = part(values_, piece);
    pulling_from_.insert(pulling_from_.end(), 2, server_of(piece));
    check_mpi(
        MPI_Irecv(
            values.mutable_data_ptr(),
            static_cast<int>(values.nbytes()),
            MPI_BYTE,
            server_of(piece).rank,
            kFirstValuesTag + static_cast<int>(piece),
            channel_->expected(),
            &pulling_.emplace_back(MPI_REQUEST_NULL)),
        "MPI_Irecv");
    check_mpi(
        MPI_Isend(
            &pulls_[piece],
            sizeof(Pull),
            MPI_BYTE,
            server_of(piece).rank,
            kPullTag,
            channel_->requests(),
            &pulling_.emplace_back(MPI_REQUEST_NULL)),
        "MPI_Isend");
  }
}

void ParameterClient::finish_pull() {
  channel_->wait(pulling_, "pulling parameters", pulling_from_);
  const at::NoGradGuard no_grad;
  for (const Slot& slot : layout_.slots) {
    if (!slot.parameter.device().is_cpu()) {
      at::Tensor(slot.parameter).copy_(part(values_, slot), /*non_blocking=*/true);
    }
  }
}

void ParameterClient::begin_push(const Push& push, const std::vector<double>& rates, bool only_finite) {
  ISO_CHECK(!pushing_, "a push begins before the last one has ended");
  std::ranges::fill(missing_, std::size_t{0});
  for (const auto& pieces : pieces_of_) {
    for (const std::size_t piece : pieces) {
      ++missing_[piece];
    }
  }
  has_gradient_.assign(layout_.slots.size(), false);
  for (std::size_t piece = 0; piece < pushes_.size(); ++piece) {
    pushes_[piece] = push;
    pushes_[piece].piece = static_cast<std::int64_t>(piece);
    pushes_[piece].rate *= rates[layout_.strips[layout_.pieces[piece].strip].group];
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
    take(slot, layout_.slots[slot].parameter.grad());
  } catch (...) {
    failure_ = std::current_exception();  // autograd cannot take it
  }
}

// Pieces that lie within one parameter leave from its gradient as it is; where several meet, they are joined in the
// strip.
void ParameterClient::take(std::size_t slot_number, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  const Slot& slot = layout_.slots[slot_number];
  const at::Tensor flat = usable(gradient, layout_.strips[slot.strip].type);
  for (const std::size_t number : pieces_of_[slot_number]) {
    const Piece& piece = layout_.pieces[number];
    const std::int64_t first = std::max(piece.first, slot.first);
    const std::int64_t size = std::min(piece.last, slot.first + slot.parameter.numel()) - first;
    if (flat.defined() && size == piece.size()) {
      leaving_[number] = flat.narrow(0, first - slot.first, size);
      continue;
    }
    const at::Tensor place = gradients_[slot.strip].narrow(0, first, size);
    if (flat.defined()) {
      place.copy_(flat.narrow(0, first - slot.first, size));
    } else {
      place.zero_();
    }
    leaving_[number] = part(gradients_, number);
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
  for (const std::size_t piece : pieces_of_[slot]) {
    if (--missing_[piece] == 0) {
      complete.push_back(piece);
    }
  }
  if (!failure_) {  // else move_to() sends them
    std::ranges::for_each(complete, [this](std::size_t piece) { send(piece); });
  }
}

void ParameterClient::send(std::size_t piece) {
  const at::Tensor& gradient = leaving_[piece];
  const int rank = server_of(piece).rank;
  pushing_to_.insert(pushing_to_.end(), 3, server_of(piece));
  const auto next = [this] { return &requests_.emplace_back(MPI_REQUEST_NULL); };
  check_mpi(
      MPI_Irecv(&answers_[sent_now_], sizeof(PushAnswer), MPI_BYTE, rank, kAnswerTag, channel_->expected(), next()),
      "MPI_Irecv");
  check_mpi(
      MPI_Isend(&pushes_[piece], sizeof(Push), MPI_BYTE, rank, kPushTag, channel_->requests(), next()), "MPI_Isend");
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
      take(slot, layout_.slots[slot].parameter.grad());
    }
  }
  channel_->wait(requests_, "pushing a gradient", pushing_to_);
  pushing_to_.clear();
  forget_push();
  Pushed pushed{.finite = finite_};
  for (const PushAnswer& answer : answers_) {
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
  leaving_.assign(layout_.pieces.size(), {});
  pushing_ = false;
}

void ParameterClient::move_to(Channel& channel, const std::vector<int>& server_of, std::vector<Peer> servers) {
  channel_ = &channel;
  servers_ = std::move(servers);
  for (std::size_t piece = 0; piece < layout_.pieces.size(); ++piece) {
    layout_.pieces[piece].server = server_of[piece];
  }
  failure_ = nullptr;
  sent_now_ = 0;
  for (std::size_t piece = 0; pushing_ && piece < layout_.pieces.size(); ++piece) {
    if (missing_[piece] == 0) {
      send(piece);
    }
  }
}

}  // namespace isochron::server
