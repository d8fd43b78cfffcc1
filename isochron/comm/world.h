// The workers of a job: a communicator that can lose members and gain them, and PyTorch's group over it.
//
// A failure in the group (PeerError) makes it unusable, for everybody. Each worker then drops what it built on the
// group and calls rebuild(), which returns on all survivors with a group of the survivors in their old order. Whoever
// keeps them waiting longer than the time-out is killed first: one that was only late could otherwise come back into a
// job that has moved on. Needs ULFM; without it rebuild() throws, and the job is to be started again. Not thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <mpi.h>

#include "isochron/comm/mpi_backend.h"
#include "isochron/comm/progress_thread.h"
#include "isochron/core/peer_error.h"

namespace c10d {
class Backend;
class ProcessGroup;
}  // namespace c10d

namespace isochron {

class Newcomer;

struct WorldOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // of every exchange
  SlowWatch watch;
  int gpu = -1;                                  // see MpiBackendOptions
  std::function<void(const std::string&)> warn;  // likewise
  // Kills a worker for good; false if it cannot, or has not within half of the time-out. Threads call it, one for each
  // worker. None: processes of this host are killed, others cannot be.
  std::function<bool(const Peer&)> fence;

  // What a vote, or a change of the members, may take in all: those who are late are killed after each time-out, which
  // takes half of one where there is a fence, so who still waits then waits for MPI itself.
  std::chrono::milliseconds longest_wait() const;
};

class World {
 public:
  // Collective over `members`, which belongs to this from now on.
  World(MPI_Comm members, WorldOptions options);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const { return group_; }
  int rank() const;
  int size() const;
  // Where the workers are, by rank.
  const std::vector<Peer>& peers() const { return peers_of(*backend_); }
  // For communicators beside the group; it belongs to this.
  MPI_Comm comm() const { return comm_; }

  // Ends everything in flight with an error, on all workers where MPI can.
  void abort();

  // Collective over those who live, after abort() or a PeerError. `suspects` are killed first. Throws Error if MPI
  // cannot, or somebody cannot be killed.
  void rebuild(const std::vector<Peer>& suspects);

  // Collective. True on all if everybody says so and nobody is lost; after false comes rebuild(). Everybody must vote,
  // whatever went wrong before.
  bool agree(bool ok);

  // Collective: takes in a process that is ready, which becomes the last rank; `newcomer` counts on rank 0 only.
  // Throws PeerError on all if it comes to nothing; rebuild() then.
  void admit(Newcomer* newcomer);

 private:
  struct Candidate;
  MpiBackendOptions backend_options() const;
  Candidate build(MPI_Comm comm) const;
  void adopt(Candidate next);
  void drop_group();
  void evict(const std::vector<Peer>& suspects) const;
  // Runs `task` beside this thread and kills whoever keeps it waiting.
  void watch(const std::function<void()>& task);

  const WorldOptions options_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  // Whoever rebuilds has voted against going on as it is, or another worker that asks in agree() would wait for it.
  bool gave_up_ = false;
  c10::intrusive_ptr<c10d::Backend> backend_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace isochron
