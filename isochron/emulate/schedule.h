// What a cluster's changes make of its workers' limits, as a pure function of where the job is: steps may go back, as
// they do when a job trains several times in turn.
#pragma once

#include <cstdint>
#include <vector>

#include "isochron/sim/cluster.h"

namespace isochron::emulate {

struct Limits {
  double cores = 1.0;
  bool stopped = false;  // by an event, until another one continues it
  bool present = true;   // from the start, or since it joined, until it is killed
  bool operator==(const Limits&) const = default;
};

/// Throws std::invalid_argument unless the workers that are absent at first come last: ranks are given in order.
void require_absent_last(const sim::ClusterSpec& cluster);

/// A cluster whose file says `next` while it runs. Workers are known by their names and keep their places: those that
/// `next` does not name any more are absent, new ones come last.
[[nodiscard]] sim::ClusterSpec followed_by(const sim::ClusterSpec& cluster, sim::ClusterSpec next);

class Schedule {
 public:
  explicit Schedule(sim::ClusterSpec cluster);

  /// For every worker, after all changes with at_step up to `step` in the order of their steps, then all with
  /// at_seconds up to `seconds` in the order of their times; equal ones in the order of the file. Both are negative
  /// before the first step.
  [[nodiscard]] std::vector<Limits> at(std::int64_t step, double seconds) const;

  /// The limits at the start and after every moment at which something changes.
  [[nodiscard]] std::vector<std::vector<Limits>> stages() const;

 private:
  sim::ClusterSpec cluster_;  // its changes in the order in which they hold
};

}  // namespace isochron::emulate
