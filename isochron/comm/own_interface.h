// Keeps MPI's ports off interfaces that the job does not use. Open MPI 5 asks for all interfaces whenever it listens,
// and none of its options changes that (btl_tcp_if_include only says which addresses are told to others). So bind()
// is ours, in workers and, from a library that `isochron launch` preloads, in mpirun: while an interface is chosen, a
// socket that asks for all interfaces gets the address of that one.
#pragma once

#include <string>

namespace isochron {

/// The interface for MPI's ports of this worker, if it is known: that of ISOCHRON_INTERFACE, or of Open MPI's
/// btl_tcp_if_include if that names one; else loopback if all workers are on this host. Empty: all of them.
[[nodiscard]] std::string interface_for_mpi();

/// While it lives, sockets of this process that ask for all interfaces are bound to `name` alone, or to loopback if
/// that has no address of their kind; an empty name changes nothing. One at a time. Throws std::invalid_argument if
/// there is no such interface.
class OwnInterface {
 public:
  explicit OwnInterface(const std::string& name);
  OwnInterface(const OwnInterface&) = delete;
  OwnInterface& operator=(const OwnInterface&) = delete;
  ~OwnInterface();
};

}  // namespace isochron
