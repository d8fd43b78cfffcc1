#include "isochron/server/parameter_server.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "isochron/core/error.h"

namespace isochron::server {
namespace {

constexpr std::size_t kMostIncoming = 16;  // gradients that are received at the same time
constexpr auto kBetweenChecks = std::chrono::milliseconds(100);

// An error in what somebody has sent is about the sender.
template <class Call>
void naming(const Peer& sender, const Call& call) {
  try {
    call();
  } catch (const PeerError&) {
    throw;
  } catch (const Error& error) {
    throw PeerError(name_of(sender) + " sent what cannot be served: " + error.what(), {sender});
  } catch (const std::out_of_range&) {
    throw PeerError(name_of(sender) + " sent what cannot be served: a chunk that is not here", {sender});
  }
}

}  // namespace

ParameterServer::ParameterServer(Link& link, Chunks chunks, Coordinator* coordinator)
    : link_(link), chunks_(std::move(chunks)), coordinator_(coordinator) {
  for (const auto& [number, chunk] : chunks_) {
    largest_ = std::max(largest_, chunk->size());
  }
}

ParameterServer::~ParameterServer() {
  stop();
}

void ParameterServer::start(const Around& around) {
  thread_ = std::thread([this, around] { around([this] { run(); }); });
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
    applied += chunk->ledger().updates();
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
  } catch (const std::exception& error) {
    failure = std::current_exception();
    link_.fail(failure_of(error));
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
    const std::uint64_t seen = link_.events();
    bool active = finish_gradients();
    active |= finish_sends();
    active |= take_request();
    const auto now = Clock::now();
    if (coordinator_ != nullptr && now - checked > kBetweenChecks) {
      check_patience();
      checked = now;
    }
    say_alive();
    if (active) {
      last_active = now;
    } else {
      link_.idle(seen, now - last_active, true);
    }
  }
}

// Whoever asks meanwhile waits, and hears now and then that somebody is here.
bool ParameterServer::wait_while_paused() {
  std::unique_lock lock(mutex_);
  if (!stop_ && pause_wanted_ && incoming_.empty() && outgoing_.empty()) {
    paused_ = true;
    changed_.notify_all();
    while (!changed_.wait_for(lock, link_.timeout() / 4, [this] { return !pause_wanted_ || stop_; })) {
      lock.unlock();
      say_alive();
      lock.lock();
    }
    paused_ = false;
    heard_ = Clock::now();
  }
  return !stop_;
}

void ParameterServer::say_alive() {
  const auto now = Clock::now();
  if (now - said_ >= link_.timeout() / 4) {
    link_.say_alive();
    said_ = now;
  }
}

bool ParameterServer::take_request() {
  if (incoming_.size() >= kMostIncoming) {
    return false;
  }
  const std::optional<Request> request = link_.take_request();
  if (!request) {
    return false;
  }
  naming(link_.peer(request->rank), [&] { answer(*request); });
  return true;
}

void ParameterServer::answer(const Request& request) {
  switch (request.tag) {
    case kPushTag: {
      const auto push = decode<PushHeader>(request.message);
      if (push.skipped) {
        answer(request.rank, push, {});
      } else {
        receive_gradient(request.rank, push);
      }
      break;
    }
    case kPullTag:
      answer(request.rank, decode<PullHeader>(request.message));
      break;
    case kGoodbyeTag:
      see_off(request.rank);
      break;
    default:
      if (coordinator_ == nullptr) {
        throw Error("a report for a coordinator that is elsewhere");
      }
      hear(request.rank, decode<IterationReport>(request.message));
  }
}

void ParameterServer::receive_gradient(int rank, const PushHeader& push) {
  const std::size_t size = chunks_.at(push.chunk)->size();
  Incoming& incoming = incoming_.emplace_back(Incoming{.push = push, .rank = rank});
  if (spare_.empty()) {
    incoming.gradient.resize(largest_);
  } else {
    incoming.gradient = std::move(spare_.back());
    spare_.pop_back();
  }
  incoming.transfer = link_.receive(rank, kGradientTag, Space(incoming.gradient).first(size));
}

// A worker's gradients arrive in order, but those of different workers may end in any.
bool ParameterServer::finish_gradients() {
  bool any = false;
  for (auto incoming = incoming_.begin(); incoming != incoming_.end();) {
    if (link_.ended(*incoming->transfer)) {
      const std::size_t size = chunks_.at(incoming->push.chunk)->size();
      // Only now it is seen whether the settings that came before it are some.
      naming(link_.peer(incoming->rank), [&] {
        answer(incoming->rank, incoming->push, Space(incoming->gradient).first(size));
      });
      spare_.push_back(std::move(incoming->gradient));
      incoming = incoming_.erase(incoming);
      any = true;
    } else {
      ++incoming;
    }
  }
  return any;
}

void ParameterServer::answer(int rank, const PushHeader& push, Space gradient) {
  const std::int64_t staleness = chunks_.at(push.chunk)->apply(push, gradient);
  if (staleness >= 0) {
    note(push.from);
  }
  const PushAnswer answer{.chunk = push.chunk, .iteration = push.from.iteration, .staleness = staleness};
  link_.tell(rank, kAnswerTag, encode(answer));
}

void ParameterServer::answer(int rank, const PullHeader& pull) {
  Outgoing& outgoing = outgoing_.emplace_back(Outgoing{.values = chunks_.at(pull.chunk)->pull(pull)});
  outgoing.transfer = link_.send(rank, kFirstValuesTag + static_cast<int>(pull.chunk), outgoing.values.bytes);
}

void ParameterServer::hear(int rank, const IterationReport& report) {
  heard_ = Clock::now();
  for (const Coordinator::Reply& reply : coordinator_->hear(rank, report)) {
    link_.tell(reply.rank, kAssignmentTag, encode(reply.assignment));
  }
  see_off(-1);
}

// A rank has closed the job, which is in order as long as nobody waits for it.
void ParameterServer::see_off(int rank) {
  if (coordinator_ == nullptr) {
    return;
  }
  if (rank >= 0) {
    coordinator_->leave(rank);
  }
  std::vector<Peer> missing;
  for (const int one : coordinator_->missing()) {
    missing.push_back(link_.peer(one));
  }
  if (!missing.empty()) {
    throw closed_early(std::move(missing));
  }
}

// Whoever keeps the others waiting for twice the time-out is late: those at work may themselves wait for a server that
// does not answer, which they notice first.
void ParameterServer::check_patience() const {
  const std::vector<int> ranks = coordinator_->late();
  if (ranks.empty() || Clock::now() - heard_ < 2 * link_.timeout()) {
    return;
  }
  std::vector<Peer> late;
  late.reserve(ranks.size());
  for (const int rank : ranks) {
    late.push_back(link_.peer(rank));
  }
  throw TimeoutError(
      "workers have waited for twice the time-out of " + std::to_string(link_.timeout().count()) + " ms for " +
          names_of(late),
      late);
}

void ParameterServer::note(const Provenance& from) {
  const auto [last, is_new] = last_arrival_.try_emplace(from.worker, from.iteration);
  if (is_new || last->second < from.iteration) {
    last->second = from.iteration;
    arrivals_.push_back(from);
  }
}

bool ParameterServer::finish_sends() {
  const std::size_t before = outgoing_.size();
  std::erase_if(outgoing_, [this](Outgoing& outgoing) { return link_.ended(*outgoing.transfer); });
  return outgoing_.size() != before;
}

void ParameterServer::drain() {
  Transfers transfers;
  for (const Incoming& incoming : incoming_) {
    transfers.push_back(incoming.transfer);
  }
  for (const Outgoing& outgoing : outgoing_) {
    transfers.push_back(outgoing.transfer);
  }
  std::erase(transfers, nullptr);
  if (!transfers.empty()) {
    link_.drain(transfers);
  }
  incoming_.clear();
  outgoing_.clear();
}

}  // namespace isochron::server
