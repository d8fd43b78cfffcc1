// A machine as the planner sees it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isochron/core/curve/curve.h"
#include "isochron/plan/profile.h"
#include "isochron/sim/cluster.h"

namespace isochron::plan {

struct Machine {
  std::string name;
  Curve curve;                       // seconds for its samples of a step, up to its last gradient
  double update_seconds = 0.0;       // after the exchange: the optimizer
  double copy_seconds = 0.0;         // per byte of gradients that goes through its memory
  double noise = 0.0;                // standard deviation of the logarithm of its times, 0 or more
  std::int64_t measured = kNoLimit;  // the largest batch that the curve was measured at
  std::int64_t min_batch = 1;
  std::int64_t max_batch = kNoLimit;
  std::int64_t granularity = 1;
  sim::Link link;
  double price_per_hour = 0.0;
};

/// Machines that are alike.
struct Group {
  Machine machine;
  std::int64_t count = 1;
};

/// A machine `speed` times as fast as the profile's. With a core beside those that compute, samples are prepared while
/// it computes (`prepares_aside`) and cost nothing until they take longer; otherwise one after the other.
[[nodiscard]] Machine make_machine(const Profile& profile, double speed, bool prepares_aside);

/// Whether the profile's machine has such a core.
[[nodiscard]] bool has_spare_core(const Profile& profile);

/// A worker of an emulated cluster: `cores` times as fast as a profile on one core, with nothing beside. Throws
/// std::invalid_argument if the cluster changes during the run or has workers that are not there at its start.
[[nodiscard]] std::vector<Group> emulated_machines(const sim::ClusterSpec& cluster, const Profile& profile);

[[nodiscard]] std::int64_t count_machines(const std::vector<Group>& groups);

}  // namespace isochron::plan
