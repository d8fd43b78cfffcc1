// Fits a cluster to the cores of one machine.
#pragma once

#include <string>
#include <vector>

#include "isochron/sim/cluster.h"

namespace isochron::emulate {

/// Cores that this process may use.
[[nodiscard]] double machine_cores();

/// All speeds, at the start and after every change, times one factor: the largest at which no worker ever has more than
/// one core (it has one thread) and all together never more than three quarters of the machine (the rest is for the
/// launcher, MPI's daemon and the kernel). On two cores this is 1/32 for the published clusters of 48 cores.
[[nodiscard]] sim::ClusterSpec fit_to_machine(sim::ClusterSpec cluster, double cores);

/// Where the emulation cannot be what the cluster says, in words: more cores than the machine has, or than one thread
/// can use.
[[nodiscard]] std::vector<std::string> warnings_about(const sim::ClusterSpec& cluster, double cores);

}  // namespace isochron::emulate
