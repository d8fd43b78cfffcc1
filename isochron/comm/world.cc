#include "isochron/comm/world.h"

#include <cerrno>
#include <csignal>
#include <future>
#include <thread>
#include <utility>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "isochron/comm/mpi_backend.h"
#include "isochron/comm/mpi_call.h"
#include "isochron/comm/mpi_session.h"
#include "isochron/comm/newcomer.h"
#include "isochron/comm/ulfm.h"
#include "isochron/comm/watchdog.h"

namespace isochron {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kNewsTime = std::chrono::milliseconds(20);
constexpr auto kTimeToHear = std::chrono::seconds(5);

// What it may take to let go of the others.
constexpr auto kTimeToPart = std::chrono::seconds(10);

std::string this_host() {
  std::string name(MPI_MAX_PROCESSOR_NAME, '\0');
  int length = 0;
  MPI_Get_processor_name(name.data(), &length);
  name.resize(static_cast<std::size_t>(length));
  return name;
}

bool kill_on_this_host(const Peer& peer) {
  return peer.host == this_host() && (::kill(peer.process, SIGKILL) == 0 || errno == ESRCH);
}

// The news of a death may still be on its way.
bool is_lost_soon(MPI_Comm comm, int rank) {
  const auto deadline = Clock::now() + kTimeToHear;
  bool lost = false;
  while (!(lost = is_lost(comm, rank)) && Clock::now() < deadline) {
    std::this_thread::sleep_for(kNewsTime);
  }
  return lost;
}

// False at the deadline.
bool ends_before(Vote& vote, Clock::time_point deadline) {
  const Backoff backoff;
  const auto start = Clock::now();
  while (!vote.test()) {
    const auto now = Clock::now();
    if (now >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(backoff.sleep_after(now - start));
  }
  return true;
}

bool result_of(Vote& vote) {
  ends_before(vote, Clock::time_point::max());
  return vote.won();
}

}  // namespace

// What the world may become.
struct World::Candidate {
  MPI_Comm comm = MPI_COMM_NULL;
  c10::intrusive_ptr<c10d::Backend> backend;  // null: it could not be made

  void discard() {
    if (backend) {
      backend->abort();
      backend.reset();
    }
    if (comm != MPI_COMM_NULL) {
      revoke(comm);  // others may still be building on it
      // It is not freed: a message of a vote on it may still come, and Open MPI 5.0.11 would look for it in vain.
      comm = MPI_COMM_NULL;
    }
  }
};

World::World(MPI_Comm members, WorldOptions options) : options_(std::move(options)) {
  MPI_Comm_set_errhandler(members, MPI_ERRORS_RETURN);
  adopt({.comm = members, .backend = make_mpi_backend(members, backend_options())});
}

// Where others end first, the thread that drives MPI may wait for ever for a lock that it holds itself (Open MPI
// 5.0.11: mca_btl_tcp_frag_recv, through mca_pml_ob1_revoke_comm, to mca_btl_tcp_endpoint_send). It is left behind
// then, and what this process has to do after the job is done all the same.
World::~World() {
  std::packaged_task<void()> part([group = std::move(group_), backend = std::move(backend_), comm = comm_]() mutable {
    group.reset();
    backend.reset();
    MPI_Comm_free(&comm);
  });
  const std::future<void> parted = part.get_future();
  std::thread(std::move(part)).detach();
  if (parted.wait_for(kTimeToPart) != std::future_status::ready) {
    MpiSession::end_in_time();
  }
}

int World::rank() const {
  return group_->getRank();
}
int World::size() const {
  return group_->getSize();
}

void World::abort() {
  backend_->abort();
}

MpiBackendOptions World::backend_options() const {
  return {.timeout = options_.timeout, .watch = options_.watch, .gpu = options_.gpu, .warn = options_.warn};
}

World::Candidate World::build(MPI_Comm comm) const {
  Candidate next{.comm = comm};
  try {
    next.backend = make_mpi_backend(comm, backend_options());
  } catch (const PeerError&) {
    revoke(comm);
  }
  return next;
}

void World::adopt(Candidate next) {
  drop_group();
  comm_ = next.comm;  // the old one stays: see Candidate::discard()
  gave_up_ = false;
  backend_ = std::move(next.backend);
  group_ = make_group(backend_);
}

void World::drop_group() {
  const WatchedThread watched("leaving the group of the workers before", options_.longest_wait());
  group_.reset();
  backend_.reset();
}

// All at once: the others wait for it. Every survivor does it, and all but the first may fail: the worker is gone then.
void World::evict(const std::vector<Peer>& suspects) const {
  std::vector<std::future<bool>> gone;
  gone.reserve(suspects.size());
  for (const Peer& peer : suspects) {
    gone.push_back(std::async(std::launch::async, [this, peer] {
      return (options_.fence ? options_.fence(peer) : kill_on_this_host(peer)) || is_lost_soon(comm_, peer.rank);
    }));
  }
  for (std::size_t i = 0; i < suspects.size(); ++i) {
    if (const Peer& peer = suspects[i]; !gone[i].get()) {
      throw Error(
          "rank " + std::to_string(peer.rank) + " on " + peer.host + " (process " + std::to_string(peer.process) +
          ") does not answer and cannot be killed from here, so the job cannot go on without it");
    }
  }
}

std::chrono::milliseconds WorldOptions::longest_wait() const {
  return (fence ? 6 : 4) * timeout + kTimeToPart;
}

void World::watch(const std::function<void()>& task) {
  std::future<void> done = std::async(std::launch::async, [this, &task] {
    const WatchedThread watched("a change of the job's members", options_.longest_wait());
    task();
  });
  while (done.wait_for(options_.timeout) != std::future_status::ready) {
    const std::vector<Peer> late = suspects(*backend_);
    if (done.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      evict(late);
    }
  }
  done.get();
}

void World::rebuild(const std::vector<Peer>& suspects) {
  if (!has_ulfm()) {
    throw PeerLostError("a worker is lost, and this MPI has no ULFM to go on without it; start the job again", {});
  }
  MpiSession::end_in_time();
  abort();
  evict(suspects);
  Candidate next;
  watch([&] {
    if (!gave_up_) {
      // News of a death that comes while MPI is busy with a vote is put off together with a pointer to that vote, which
      // may be gone by then (Open MPI 5.0.11, era_mark_process_failed), and the process crashes: let it arrive first.
      std::this_thread::sleep_for(kNewsTime);
      Vote vote(comm_, false);
      result_of(vote);
    }
    do {
      next.discard();
      next = build(shrink(comm_));
      Vote vote(next.comm, next.backend != nullptr);
      if (result_of(vote)) {
        return;
      }
    } while (true);
  });
  adopt(std::move(next));
}

bool World::agree(bool ok) {
  if (size() == 1) {
    return ok;
  }
  WatchedThread watched("a vote of the workers", options_.longest_wait());
  Vote vote(comm_, ok);
  while (!ends_before(vote, Clock::now() + options_.timeout)) {
    const std::vector<Peer> late = suspects(*backend_);
    evict(late);
    if (!late.empty()) {  // else the wait is for MPI itself
      watched.beat();
    }
  }
  gave_up_ = !vote.won();
  return vote.won();
}

void World::admit(Newcomer* newcomer) {
  MpiSession::end_in_time();
  Candidate next;
  bool admitted = false;
  watch([&] {
    try {
      next = build(newcomer != nullptr ? newcomer->merge(comm_) : merge_newcomer(comm_));
    } catch (const PeerError&) {
      revoke(comm_);  // the others wait in the same calls
    }
    Vote vote(comm_, next.backend != nullptr);
    admitted = result_of(vote);
  });
  if (!admitted) {
    gave_up_ = true;
    next.discard();
    throw PeerLostError("a worker was lost while another joined", {});
  }
  adopt(std::move(next));
}

}  // namespace isochron
