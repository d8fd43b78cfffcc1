// What --fence says: a command of the user's own that kills a process which this host cannot reach itself.
#pragma once

#include <chrono>
#include <string>

#include "isochron/core/peer_error.h"

namespace isochron::worker {

/// Since the job stands still meanwhile; half of the job's time-out if that is less.
inline constexpr std::chrono::milliseconds kTimeToFence{60'000};

/// Runs `command` in a shell, with {host} and {pid} replaced. Whether it ended with status 0 in time; else it is killed
/// with all that it has started.
[[nodiscard]] bool run_fence(std::string command, const Peer& peer, std::chrono::milliseconds time = kTimeToFence);

}  // namespace isochron::worker
