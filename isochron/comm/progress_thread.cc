#include "isochron/comm/progress_thread.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>

#include <mpi.h>

#include "isochron/comm/mpi_call.h"
#include "isochron/comm/ulfm.h"
#include "isochron/comm/watchdog.h"

namespace isochron {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kChunksUnderWay = 3;
// An idle thread looks this often whether a peer asks for it.
constexpr auto kIdlePause = 50ms;
// While a GPU waits for others, this often whether they live.
constexpr auto kPeersPause = 50ms;
constexpr auto kRollCallPatience = 1000ms;
// Before somebody is merely named, since nothing else is looked after meanwhile.
constexpr auto kNamingPatience = 300ms;
// A rank whose communication has failed: no collective can be ahead of that.
constexpr auto kGaveUp = std::numeric_limits<std::int64_t>::max();
// After a revocation requests ended within 18 ms wherever it was measured.
constexpr auto kDrainPatience = 1000ms;

// Between two turns of the thread, in which it may ask a silent peer twice and wait as long as for an operation.
std::chrono::milliseconds limit_with(std::chrono::milliseconds timeout) {
  return 2 * timeout + 15s;
}

std::string named(const Peer& peer) {
  return "rank " + std::to_string(peer.rank) + " on " + peer.host;
}

std::string seconds(std::chrono::milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", std::chrono::duration<double>(time).count());
  return text;
}

// A worker behind others that are silent may itself be waiting for them.
std::vector<Peer> pick_suspects(const std::vector<RollCall::Missing>& missing) {
  std::int64_t least = kGaveUp;
  for (const auto& [peer, started] : missing) {
    least = std::min(least, started.value_or(-1));
  }
  std::vector<Peer> suspects;
  for (const auto& [peer, started] : missing) {
    if (started.value_or(-1) == least) {
      suspects.push_back(peer);
    }
  }
  return suspects;
}

}  // namespace

ProgressThread::ProgressThread(MPI_Comm parent, Backoff backoff, SlowWatch watch)
    : backoff_(backoff), watch_(std::move(watch)), roll_call_(parent) {
  for (MPI_Comm* const comm : {&comm_, &comm_for_chunks_}) {
    check_mpi(MPI_Comm_dup(parent, comm), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
  }
  // A revocation that reaches a rank which is still duplicating crashes it (Open MPI 5.0.11).
  check_mpi(MPI_Barrier(comm_), "MPI_Barrier");
  thread_ = std::thread([this] { run(); });
}

ProgressThread::~ProgressThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
  MPI_Comm_free(&comm_for_chunks_);
  MPI_Comm_free(&comm_);
}

void ProgressThread::submit(Operation operation) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(operation));
  }
  wake_.notify_one();
}

void ProgressThread::abort() {
  {
    const std::lock_guard lock(mutex_);
    abort_ = true;
  }
  wake_.notify_one();
}

void ProgressThread::run() {
  pthread_setname_np(pthread_self(), "isochron-mpi");
  // Alone nobody waits for this thread, so that the job can still save its state and end.
  const auto farewell = roll_call_.size() == 1 ? kTimeToSave : 0ms;
  WatchedThread watched("the thread that drives MPI", limit_with(last_timeout_), farewell);
  auto moved = Clock::now();
  std::deque<Operation> fresh;
  while (take_work(fresh, in_flight_.empty() ? kIdlePause : backoff_.sleep_after(Clock::now() - moved))) {
    watched.beat();
    if (!fresh.empty()) {
      moved = Clock::now();
      watched.set_limit(limit_with(fresh.front().timeout));
    }
    for (; !fresh.empty(); fresh.pop_front()) {
      start(std::move(fresh.front()));
    }
    if (advance()) {
      moved = Clock::now();
    }
    check_deadlines(Clock::now());
    check_peers(Clock::now());
    check_patience(Clock::now());
    answer_questions();
    roll_call_.serve(collectives_started_);
  }
}

bool ProgressThread::take_work(std::deque<Operation>& fresh, std::chrono::nanoseconds pause) {
  std::unique_lock lock(mutex_);
  // Once it ends there is nobody left to wake it.
  if (pause > 0ns) {
    wake_.wait_for(lock, pause, [this] {
      return !queue_.empty() || abort_ || !questions_.empty() || (stop_ && in_flight_.empty());
    });
  }
  fresh.swap(queue_);
  if (std::exchange(abort_, false)) {
    lock.unlock();
    fail(std::make_exception_ptr(Error("communication was aborted")));
    return true;
  }
  return !(stop_ && fresh.empty() && in_flight_.empty());
}

void ProgressThread::start(Operation operation) {
  if (failure_) {
    operation.done(failure_, MPI_ANY_SOURCE);
    return;
  }
  collectives_started_ += operation.partners == Operation::Partners::kAll ? 1 : 0;
  const auto now = Clock::now();
  in_flight_.push_back({std::move(operation), {}, now, now});
  InFlight& flight = in_flight_.back();
  flight.deadline += flight.operation.timeout;
  last_timeout_ = flight.operation.timeout;
  flight.has_more = flight.operation.start_chunk != nullptr;
  if (flight.has_more) {
    start_chunks();
    return;
  }
  if (flight.operation.has_ended) {
    return;
  }
  try {
    flight.operation.start(comm_, flight.requests);
  } catch (const std::exception& error) {
    fail(std::make_exception_ptr(lost(flight.operation, error.what())));
  }
}

void ProgressThread::start_chunks() {
  std::size_t under_way = 0;
  for (InFlight& flight : in_flight_) {
    under_way += flight.operation.start_chunk ? flight.requests.size() : 0;
    try {
      for (; flight.has_more && under_way < kChunksUnderWay; ++under_way) {
        flight.has_more = flight.operation.start_chunk(comm_for_chunks_, flight.requests);
      }
    } catch (const std::exception& error) {
      fail(std::make_exception_ptr(lost(flight.operation, error.what())));
      return;
    }
    if (flight.has_more) {
      return;
    }
  }
}

bool ProgressThread::advance() {
  bool moved = false;
  for (auto flight = in_flight_.begin(); flight != in_flight_.end();) {
    int source = MPI_ANY_SOURCE;
    const std::size_t before = flight->requests.size();
    bool ended = false;
    try {
      ended = test(*flight, source);
    } catch (...) {
      fail(std::current_exception());
      return true;
    }
    moved |= flight->requests.size() < before;
    if (!ended) {
      ++flight;
      continue;
    }
    const InFlight finished = std::move(*flight);
    flight = in_flight_.erase(flight);
    finished.operation.done(nullptr, source);
    moved = true;
    told_ = false;
  }
  if (moved) {
    start_chunks();
  }
  return moved;
}

bool ProgressThread::test(InFlight& flight, int& source) {
  auto& requests = flight.requests;
  // One by one, since a status array cannot tell which request an error belongs to in all implementations.
  while (!requests.empty()) {
    int ended = 0;
    MPI_Status status;
    const int code = MPI_Test(&requests.front(), &ended, &status);
    if (code != MPI_SUCCESS) {
      throw lost(flight.operation, mpi_error_text(code));
    }
    if (ended == 0) {
      return false;
    }
    source = status.MPI_SOURCE;
    requests.erase(requests.begin());
  }
  return !flight.has_more && (!flight.operation.has_ended || flight.operation.has_ended());
}

PeerLostError ProgressThread::lost(const Operation& operation, const std::string& reason) const {
  std::string text = operation.name + " failed";
  std::vector<Peer> peers;
  for (const int rank : failed_ranks(comm_)) {
    peers.push_back(roll_call_.peer(rank));
    text += (peers.size() == 1 ? ", lost " : ", ") + named(peers.back());
  }
  if (peers.empty() && operation.partners == Operation::Partners::kOne) {
    peers.push_back(roll_call_.peer(operation.peer));
    text += ", with " + named(peers.back());
  }
  return {text + ": " + reason, std::move(peers)};
}

void ProgressThread::check_deadlines(Clock::time_point now) {
  for (const InFlight& flight : in_flight_) {
    if (now >= flight.deadline) {
      fail(std::make_exception_ptr(timed_out(flight.operation)));
      return;
    }
  }
}

void ProgressThread::check_peers(Clock::time_point now) {
  const auto waiting =
      std::ranges::find_if(in_flight_, [](const InFlight& flight) { return flight.operation.has_ended != nullptr; });
  if (waiting == in_flight_.end() || now < peers_checked_ + kPeersPause) {
    return;
  }
  peers_checked_ = now;
  if (!failed_ranks(comm_).empty() || is_revoked(comm_)) {
    fail(std::make_exception_ptr(lost(waiting->operation, "it cannot end any more")));
  }
}

void ProgressThread::check_patience(Clock::time_point now) {
  if (in_flight_.empty() || told_ || !watch_.patience) {
    return;
  }
  const InFlight& oldest = in_flight_.front();
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - oldest.started);
  if (oldest.operation.partners == Operation::Partners::kAll && waited >= watch_.patience()) {
    told_ = true;
    const auto missing = roll_call_.ask(collectives_started_, kNamingPatience);
    if (!missing.empty()) {
      watch_.tell(pick_suspects(missing), waited);
    }
  }
}

std::vector<Peer> ProgressThread::suspects() {
  std::future<std::vector<Peer>> answer;
  {
    const std::lock_guard lock(mutex_);
    answer = questions_.emplace_back().get_future();
  }
  wake_.notify_one();
  return answer.get();
}

void ProgressThread::answer_questions() {
  std::vector<std::promise<std::vector<Peer>>> questions;
  {
    const std::lock_guard lock(mutex_);
    questions.swap(questions_);
  }
  for (auto& question : questions) {
    question.set_value(pick_suspects(find_missing()));
  }
}

std::vector<RollCall::Missing> ProgressThread::find_missing() {
  auto missing = roll_call_.ask(collectives_started_, kRollCallPatience);
  if (is_outvoted(missing, failed_ranks(comm_), roll_call_.size())) {
    // This side may be the one that is cut off. The others, who are more, have the time to say so, and to end this
    // process before it blames them.
    missing = roll_call_.ask(collectives_started_, kRollCallPatience + last_timeout_);
  }
  return missing;
}

TimeoutError ProgressThread::timed_out(const Operation& operation) {
  std::string text = operation.name + " timed out after " + seconds(operation.timeout);
  std::vector<Peer> peers;
  if (operation.partners == Operation::Partners::kOne) {
    peers.push_back(roll_call_.peer(operation.peer));
    text += ", waiting for " + named(peers.back());
  } else if (operation.partners == Operation::Partners::kAll) {
    const auto missing = find_missing();
    for (const auto& [peer, started] : missing) {
      text += (peers.empty() ? ", waiting for " : ", ") + named(peer);
      text += !started ? " (silent)"
                       : " (has started " + std::to_string(*started) + " collectives, this rank " +
                             std::to_string(collectives_started_) + ")";
      peers.push_back(peer);
    }
    peers = pick_suspects(missing);
    if (peers.empty()) {
      text += "; every rank is there by now: the time-out is too short";
    }
  }
  return {text, std::move(peers)};
}

void ProgressThread::fail(std::exception_ptr error) {
  if (!failure_) {
    failure_ = std::move(error);
    collectives_started_ = kGaveUp;
    revoke(comm_);
    revoke(comm_for_chunks_);
    drain();
    for (const InFlight& flight : in_flight_) {
      if (flight.operation.cancel) {
        flight.operation.cancel();
      }
    }
  }
  for (auto& flight : std::exchange(in_flight_, {})) {
    flight.operation.done(failure_, MPI_ANY_SOURCE);
    if (!flight.requests.empty()) {
      // MPI may still write to the buffers: they are never freed.
      new Operation(std::move(flight.operation));  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): meant to leak
    }
  }
}

void ProgressThread::drain() {
  const auto deadline = Clock::now() + kDrainPatience;
  for (InFlight& flight : in_flight_) {
    auto& requests = flight.requests;
    while (!requests.empty() && Clock::now() < deadline) {
      int ended = 0;
      if (MPI_Test(&requests.back(), &ended, MPI_STATUS_IGNORE) != MPI_SUCCESS || ended != 0) {
        requests.pop_back();
      } else {
        std::this_thread::sleep_for(100us);
      }
    }
  }
}

}  // namespace isochron
