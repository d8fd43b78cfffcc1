// Who takes part in a job: brings the workers together at the start, after a failure and when one joins, so that all
// hold the same state afterwards.
//
// Coming together: everybody says where it stands (standing.h); those who are behind get the state of the first who is
// furthest; all vote that it worked. If another one is lost meanwhile they rebuild and begin again. Not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <mpi.h>

#include "isochron/comm/newcomer.h"
#include "isochron/comm/world.h"
#include "isochron/engine/checkpoint.h"
#include "isochron/engine/exchange.h"
#include "isochron/engine/standing.h"

namespace isochron {

// What the membership asks of a worker's job. Nothing of it may refer to the group any more.
class Member {
 public:
  virtual ~Member() = default;

  virtual Standing standing() const = 0;
  // Counts the step that the optimizer has taken as finished; its reports are lost.
  virtual void finish_unreported() = 0;
  virtual Checkpoint state() = 0;
  virtual void take_over(const Checkpoint& state) = 0;
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
  MPI_Comm comm() const { return world_->comm(); }

  // Collective: true on all workers, or on none (see World); recover() then.
  bool agree(bool ok) { return world_->agree(ok); }

  // Collective over those who live, after a failure; `suspects` are killed first. Throws Error if the job cannot go on.
  Settlement recover(Member& member, std::vector<Peer> suspects);

  // On the first worker: one that was invited is not in yet.
  bool expects_newcomer() const { return newcomer_ != nullptr; }
  // Starts a process that will ask to join; on the first worker, unless it expects another. See Newcomer.
  void invite(const std::vector<std::string>& words, const std::string& host, const std::function<bool()>& gone);
  // On the first worker: a newcomer is ready. One that failed, or that `objection` has something against, is sent away
  // with a word to `warn`.
  using Objection = std::function<std::string(const std::string& introduction)>;
  using Warn = std::function<void(const std::string&)>;
  bool newcomer_is_ready(const Objection& objection, const Warn& warn);
  // Collective, once the first worker's newcomer is ready and all know. Throws PeerError; recover() then.
  Settlement admit(Member& member);

  // The newcomer's side of it: nothing if the job has ended. Throws Error if it is not wanted.
  std::optional<Settlement> join(Admission& admission, Member& member, const std::string& introduction);

 private:
  // Nothing if it came to nothing.
  std::optional<Settlement> come_together(Member& member);
  void bring_up(Member& member, const Settlement& settlement);

  const WorldOptions options_;
  std::unique_ptr<World> world_;
  std::unique_ptr<Newcomer> newcomer_;  // the first worker's
};

// Those that a failure blames.
std::vector<Peer> suspects_of(const PeerError& error);

}  // namespace isochron
