// The worker's side of a launch: what stands between mpirun and the worker's own program.
//
// It stays, as the parent of that program, because MPI's own word on how a rank ended cannot be had: an mpirun that
// survives lost ranks reports success even if a signal ended every one of them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace isochron::emulate {

// In a worker's environment, for itself and for its program.
constexpr const char* kCgroupVariable = "ISOCHRON_CGROUP";    // the control group it joins
constexpr const char* kNetworkVariable = "ISOCHRON_NETWORK";  // the network namespace it joins
// The network interface of its MPI (comm/own_interface.h), and mpirun's library for the same.
constexpr const char* kInterfaceVariable = "ISOCHRON_INTERFACE";
constexpr const char* kInterfaceLibrary = "isochron-interface.so";

/// a) learns its number, if it is not given, from the rank that MPI or Slurm left in the environment;
/// b) sets the environment that the launcher noted for that worker in `folder`, and takes out mpirun's library;
/// c) a child joins its control group and network, notes its process number and becomes `command`;
/// d) notes how it ended;
/// e) if the worker was asked to end and did so, waits for the others: mpirun ends a job in which one rank fails, and
///    those that still save their state would not live to finish. The launcher sees to it that they end;
/// f) ends the same way: returns the worker's status, or is ended by the same signal.
/// Throws isochron::Error.
int enter(
    const std::filesystem::path& folder, std::optional<std::size_t> worker, const std::vector<std::string>& command);

}  // namespace isochron::emulate
