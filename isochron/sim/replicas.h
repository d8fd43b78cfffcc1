// The replicas of a simulated job in step (core/replica/replica.h): plan, report, complete, and coming together when
// workers die or join, as the front ends do it, less the bytes on their way.
//
// Replicas that are told the same hold the same state but for their rank, and no policy knows that. So one stands for
// all, and what the others would report is what they measured, signed with its digest. K of them would cost K times as
// much (isochron's step of 4 workers 26 microseconds for 6.5, of 256 workers 37 ms for 0.15) and say the same, which
// ReplicasTest asks bit by bit with a replica for every worker. A step costs what the policy costs, and O(K) beyond it.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "isochron/core/replica/replica.h"

namespace isochron::sim {

class Replicas {
 public:
  /// `open` tells a replica its data. `each`: every worker has a replica of its own.
  Replicas(JobSettings settings, std::span<const Worker> workers, std::function<void(Replica&)> open, bool each);

  /// Whatever the replicas agree on.
  [[nodiscard]] const Replica& any() const { return replicas_.front(); }
  /// As Replica::plan() and plan_parts(); what they return holds until the workers are others.
  const StepPlan& plan(std::int64_t from_stream);
  const StepPlan& plan_parts(std::span<const std::int64_t> samples);
  /// What the workers measured of the step, by rank, which is signed here; `finished` is when the gradients were
  /// averaged, on their clock.
  StepRecord complete(std::span<StepReport> measured, double finished);
  void end_epoch();

  /// Those who are there now, in the order of their ranks, come together: the step under way did not happen, who is
  /// missing is dead, and who was not there joins. A worker is known by its id: the next ones are those of who joins.
  /// Throws std::invalid_argument, changing nothing, if they cannot take B.
  void come_together(std::span<const Worker> workers);

 private:
  void adopt(const Settlement& settlement);

  JobSettings settings_;
  std::function<void(Replica&)> open_;
  bool each_;
  std::vector<Replica> replicas_;  // by rank, or one
};

}  // namespace isochron::sim
