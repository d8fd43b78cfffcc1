// How long the gradients' exchange takes: a ring all-reduce in buckets, overlapped with the backward pass.
//
// One bucket of the ring takes  d = 2 (K - 1) / K x bytes / rate + 2 (K - 1) x delay,  by the slowest link. Backward is
// the last two thirds of a step's computing and fills the n buckets one by one, so bucket i is ready everywhere at
// r_i = T/3 + 2T/3 x i/n, where T is the longest computing time. A bucket starts when it is ready and the one before
// has arrived, hence the last arrives at max_i r_i + (n - i + 1) d; that is linear in i, so one of the ends decides.
#pragma once

#include <cstddef>
#include <span>

#include "isochron/sim/cluster.h"
#include "isochron/sim/fleet.h"
#include "isochron/sim/simulate.h"

namespace isochron::sim {

/// The lower rate of the two and the longer delay: all that a ring feels of its links.
[[nodiscard]] Link slower(const Link& a, const Link& b);

/// `bytes` once round a ring of `workers` whose slowest link is `link`.
[[nodiscard]] double ring_seconds(double bytes, std::size_t workers, const Link& link);

/// d above, for the members of a cluster.
[[nodiscard]] double bucket_seconds(
    const Network& network, const ClusterSpec& cluster, std::span<const Member> members);

/// From the last gradient to the end of the exchange.
[[nodiscard]] double exposed_seconds(const Network& network, double bucket_seconds, double compute_seconds);

/// Asynchronous modes: one worker sends its gradients to the server and gets the parameters back, over its own link.
[[nodiscard]] double push_pull_seconds(const Network& network, const Link& link);

}  // namespace isochron::sim
