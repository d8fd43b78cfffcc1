#include "isochron/server/parameter_server.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/ATen.h>

#include "isochron/comm/backoff.h"
#include "isochron/comm/mpi_call.h"
#include "isochron/core/error.h"

namespace isochron::server {
namespace {

constexpr std::size_t kMostIncoming = 16;  // gradients that are received at the same time
constexpr Backoff kBackoff{.max_sleep = std::chrono::microseconds(2000)};
constexpr auto kBetweenChecks = std::chrono::milliseconds(100);

template <class Value>
Value from_bytes(const std::string& bytes) {
  ISO_CHECK(bytes.size() == sizeof(Value), "a request of another length");
  Value value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

template <class Value>
std::string as_bytes(const Value& value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

bool has_ended(MPI_Request& request) {
  int ended = 0;
  check_mpi(MPI_Test(&request, &ended, MPI_STATUS_IGNORE), "MPI_Test");
  return ended != 0;
}

}  // namespace

ParameterServer::ParameterServer(Channel& channel, Pieces pieces, Desk* desk)
    : channel_(channel), pieces_(std::move(pieces)), desk_(desk), thread_([this] { run(); }) {
}

ParameterServer::~ParameterServer() {
  stop();
}

void ParameterServer::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void ParameterServer::pause() {
  std::unique_lock lock(mutex_);
  pause_wanted_ = true;
  changed_.wait(lock, [this] { return paused_ || ended_; });
}

void ParameterServer::resume() {
  {
    const std::lock_guard lock(mutex_);
    pause_wanted_ = false;
  }
  changed_.notify_all();
}

std::int64_t ParameterServer::applied() const {
  std::int64_t applied = 0;
  for (const auto& [number, piece] : pieces_) {
    applied += piece.updates();
  }
  return applied;
}

std::exception_ptr ParameterServer::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void ParameterServer::run() {
  std::exception_ptr failure;
  try {
    serve();
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure) {
    channel_.fail();
  }
  drain();
  {
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    ended_ = true;
  }
  changed_.notify_all();
}

void ParameterServer::serve() {
  auto last_active = Clock::now();
  auto checked = last_active;
  while (wait_while_paused()) {
    bool active = finish_gradients();
    active |= finish_sends();
    active |= take_request();
    const auto now = Clock::now();
    if (desk_ != nullptr && now - checked > kBetweenChecks) {
      desk_->check_patience();
      checked = now;
    }
    if (active) {
      last_active = now;
    } else {
      std::this_thread::sleep_for(kBackoff.sleep_after(now - last_active));
    }
  }
}

bool ParameterServer::wait_while_paused() {
  std::unique_lock lock(mutex_);
  if (pause_wanted_ && incoming_.empty() && outgoing_.empty()) {
    paused_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !pause_wanted_ || stop_; });
    paused_ = false;
  }
  return !stop_;
}

bool ParameterServer::take_request() {
  if (incoming_.size() >= kMostIncoming) {
    return false;
  }
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  check_mpi(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, channel_.requests(), &found, &message, &status), "MPI_Improbe");
  if (found == 0) {
    return false;
  }
  int size = 0;
  MPI_Get_count(&status, MPI_BYTE, &size);
  std::string bytes(static_cast<std::size_t>(size), '\0');
  check_mpi(MPI_Mrecv(bytes.data(), size, MPI_BYTE, &message, MPI_STATUS_IGNORE), "MPI_Mrecv");
  switch (status.MPI_TAG) {
    case kPushTag:
      receive_gradient(status.MPI_SOURCE, from_bytes<Push>(bytes));
      break;
    case kPullTag:
      answer(status.MPI_SOURCE, from_bytes<Pull>(bytes));
      break;
    default:
      hear(status.MPI_SOURCE, bytes);
  }
  return true;
}

void ParameterServer::receive_gradient(int rank, const Push& push) {
  const at::Tensor& values = pieces_.at(push.piece).values();
  Incoming& incoming = incoming_.emplace_back(Incoming{.push = push, .rank = rank});
  if (auto& spare = spare_[values.scalar_type()]; spare.empty()) {
    incoming.gradient = at::empty({largest(values.scalar_type())}, values.options());
  } else {
    incoming.gradient = std::move(spare.back());
    spare.pop_back();
  }
  check_mpi(
      MPI_Irecv(
          incoming.gradient.mutable_data_ptr(),
          static_cast<int>(values.nbytes()),
          MPI_BYTE,
          rank,
          kGradientTag,
          channel_.expected(),
          &incoming.request),
      "MPI_Irecv");
}

// Elements of a buffer that holds the gradient of every piece of the type.
std::int64_t ParameterServer::largest(at::ScalarType type) const {
  std::int64_t elements = 0;
  for (const auto& [number, piece] : pieces_) {
    elements = std::max(elements, piece.values().scalar_type() == type ? piece.values().numel() : 0);
  }
  return elements;
}

// A worker's gradients arrive in order, but those of different workers may end in any.
bool ParameterServer::finish_gradients() {
  bool any = false;
  for (auto incoming = incoming_.begin(); incoming != incoming_.end();) {
    if (has_ended(incoming->request)) {
      answer(*incoming);
      spare_[incoming->gradient.scalar_type()].push_back(incoming->gradient);
      incoming = incoming_.erase(incoming);
      any = true;
    } else {
      ++incoming;
    }
  }
  return any;
}

void ParameterServer::answer(const Incoming& incoming) {
  ServedPiece& piece = pieces_.at(incoming.push.piece);
  const std::int64_t staleness = piece.apply(incoming.push, incoming.gradient.narrow(0, 0, piece.values().numel()));
  if (staleness >= 0) {
    note(incoming.push.from);
  }
  send(incoming.rank, kAnswerTag, as_bytes(PushAnswer{.piece = incoming.push.piece, .staleness = staleness}));
}

void ParameterServer::answer(int rank, const Pull& pull) {
  Outgoing& outgoing = outgoing_.emplace_back();
  outgoing.values = pieces_.at(pull.piece).pull(pull.worker, pull.rounds);
  check_mpi(
      MPI_Isend(
          outgoing.values.const_data_ptr(),
          static_cast<int>(outgoing.values.nbytes()),
          MPI_BYTE,
          rank,
          kFirstValuesTag + static_cast<int>(pull.piece),
          channel_.expected(),
          &outgoing.request),
      "MPI_Isend");
}

void ParameterServer::hear(int rank, const std::string& words) {
  ISO_CHECK(desk_ != nullptr, "words for a desk that is elsewhere");
  for (Desk::Reply& reply : desk_->hear(rank, words)) {
    send(reply.rank, kDeskReplyTag, std::move(reply.words));
  }
}

void ParameterServer::note(const Provenance& from) {
  const auto [last, is_new] = last_arrival_.try_emplace(from.worker, from.iteration);
  if (is_new || last->second < from.iteration) {
    last->second = from.iteration;
    arrivals_.push_back(from);
  }
}

void ParameterServer::send(int rank, int tag, std::string bytes) {
  Outgoing& outgoing = outgoing_.emplace_back();
  outgoing.bytes = std::move(bytes);
  check_mpi(
      MPI_Isend(
          outgoing.bytes.data(),
          static_cast<int>(outgoing.bytes.size()),
          MPI_BYTE,
          rank,
          tag,
          channel_.expected(),
          &outgoing.request),
      "MPI_Isend");
}

bool ParameterServer::finish_sends() {
  const std::size_t before = outgoing_.size();
  std::erase_if(outgoing_, [](Outgoing& outgoing) { return has_ended(outgoing.request); });
  return outgoing_.size() != before;
}

void ParameterServer::drain() {
  std::vector<MPI_Request> requests;
  for (const Incoming& incoming : incoming_) {
    requests.push_back(incoming.request);
  }
  for (const Outgoing& outgoing : outgoing_) {
    requests.push_back(outgoing.request);
  }
  Channel::drain(requests);
  incoming_.clear();
  outgoing_.clear();
}

}  // namespace isochron::server
