#include "isochron/server/parameter_server.h"

#include <algorithm>
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

bool has_ended(MPI_Request& request) {
  int ended = 0;
  check_mpi(MPI_Test(&request, &ended, MPI_STATUS_IGNORE), "MPI_Test");
  return ended != 0;
}

}  // namespace

ParameterServer::ParameterServer(Channel& channel, Chunks chunks, Coordination coordination)
    : channel_(channel),
      chunks_(std::move(chunks)),
      coordination_(std::move(coordination)),
      thread_([this] { run(); }) {
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
  for (const auto& [number, chunk] : chunks_) {
    applied += chunk.ledger().updates();
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
    if (coordination_.coordinator != nullptr && now - checked > kBetweenChecks) {
      check_patience();
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
    heard_ = Clock::now();
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
      receive_gradient(status.MPI_SOURCE, decode<PushHeader>(bytes));
      break;
    case kPullTag:
      answer(status.MPI_SOURCE, decode<PullHeader>(bytes));
      break;
    default:
      hear(status.MPI_SOURCE, bytes);
  }
  return true;
}

void ParameterServer::receive_gradient(int rank, const PushHeader& push) {
  const at::Tensor& values = chunks_.at(push.chunk).values();
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

// Elements of a buffer that holds the gradient of every chunk of the type.
std::int64_t ParameterServer::largest(at::ScalarType type) const {
  std::int64_t elements = 0;
  for (const auto& [number, chunk] : chunks_) {
    elements = std::max(elements, chunk.values().scalar_type() == type ? chunk.values().numel() : 0);
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
  const PushHeader& push = incoming.push;
  ServedChunk& chunk = chunks_.at(push.chunk);
  const std::int64_t staleness = chunk.apply(push, incoming.gradient.narrow(0, 0, chunk.values().numel()));
  if (staleness >= 0) {
    note(push.from);
  }
  const PushAnswer answer{.chunk = push.chunk, .iteration = push.from.iteration, .staleness = staleness};
  send(incoming.rank, kAnswerTag, encode(answer));
}

void ParameterServer::answer(int rank, const PullHeader& pull) {
  Outgoing& outgoing = outgoing_.emplace_back();
  outgoing.values = chunks_.at(pull.chunk).pull(pull);
  check_mpi(
      MPI_Isend(
          outgoing.values.const_data_ptr(),
          static_cast<int>(outgoing.values.nbytes()),
          MPI_BYTE,
          rank,
          kFirstValuesTag + static_cast<int>(pull.chunk),
          channel_.expected(),
          &outgoing.request),
      "MPI_Isend");
}

void ParameterServer::hear(int rank, const std::string& report) {
  ISO_CHECK(coordination_.coordinator != nullptr, "a report for a coordinator that is elsewhere");
  heard_ = Clock::now();
  for (const Coordinator::Reply& reply : coordination_.coordinator->hear(rank, decode<IterationReport>(report))) {
    send(reply.rank, kAssignmentTag, encode(reply.assignment));
  }
}

void ParameterServer::check_patience() const {
  const std::vector<int> ranks = coordination_.coordinator->late();
  if (ranks.empty() || Clock::now() - heard_ < 2 * channel_.timeout()) {
    return;
  }
  std::vector<Peer> late;
  std::string words =
      "workers have waited for twice the time-out of " + std::to_string(channel_.timeout().count()) + " ms for";
  for (const int rank : ranks) {
    late.push_back(coordination_.peers[static_cast<std::size_t>(rank)]);
    words += " rank " + std::to_string(rank) + " on " + late.back().host;
  }
  throw TimeoutError(words, late);
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
