// Who takes part in a job: brings the workers together at the start, after a failure and when one joins, so that all
// hold the same state afterwards.
//
// Coming together: everybody says how far it is (core/replica/progress.h); those who are behind catch up with the first
// who is furthest; all vote that it worked. If another one is lost meanwhile they rebuild and begin again. Not
// thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <mpi.h>

#include "isochron/comm/newcomer.h"
#include "isochron/comm/world.h"
#include "isochron/core/replica/introduction.h"
#include "isochron/core/replica/progress.h"
#include "isochron/engine/exchange.h"

namespace isochron {

// What the membership asks of a worker's job. Nothing of it may refer to the group any more.
class Member {
 public:
  virtual ~Member() = default;

  virtual ProgressReport progress() const = 0;
  // All have the same settlement and a group that works: the leader's state goes to those who are behind. May be done
  // again, from wherever it was left. Jobs in which nobody can be behind have nothing to do.
  virtual void catch_up(const Settlement& /*settlement*/) {}
};

class Membership {
 public:
  // Collective over `members`, the workers at the start. A process that is to join a running job is its only member
  // until join().
  Membership(MPI_Comm members, WorldOptions options);
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  ~Membership();

  const Group& group() const { return world_->group(); }
  int rank() const { return world_->rank(); }
  int size() const { return world_->size(); }
  const std::vector<Peer>& peers() const { return world_->peers(); }  // by rank
  MPI_Comm comm() const { return world_->comm(); }

  // Collective: true on all workers, or on none (see World); recover() then.
  bool agree(bool ok) { return world_->agree(ok); }

  // Collective over those who live, after a failure; `suspects` are killed first. Throws Error if the job cannot go on.
  Settlement recover(Member& member, std::vector<Peer> suspects);

  // On the first worker: one that was invited is not in yet.
  bool expects_newcomer() const { return newcomer_ != nullptr; }
  // Starts a process that will ask to join; on the first worker, unless it expects another. It is sent away if it fails
  // or does not share what `own` says, and `warn` is told why.
  using Warn = std::function<void(const std::string&)>;
  void invite(
      const std::vector<std::string>& command,
      const std::string& host,
      const std::function<bool()>& gone,  // see Newcomer
      Introduction own,
      Warn warn);
  // On the first worker: a newcomer is ready.
  bool newcomer_is_ready();
  // Collective, once the first worker's newcomer is ready and all know. Throws PeerError; recover() then.
  Settlement admit(Member& member);

  // The newcomer's side of it: nothing if the job has ended. Throws Error if it is not wanted.
  std::optional<Settlement> join(Admission& admission, Member& member, const Introduction& introduction);

 private:
  // Nothing if it came to nothing.
  std::optional<Settlement> come_together(Member& member);

  const WorldOptions options_;
  std::unique_ptr<World> world_;

  // On the first worker, while one is expected.
  std::unique_ptr<Newcomer> newcomer_;
  Introduction own_;
  Warn warn_;
};

// Those that a failure blames.
std::vector<Peer> suspects_of(const PeerError& error);

}  // namespace isochron
