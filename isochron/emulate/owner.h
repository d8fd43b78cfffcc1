// Names that say which process made a thing: what a launcher leaves behind when it is killed can be told from what a
// living one uses, by whoever comes next.
#pragma once

#include <string>
#include <string_view>

namespace isochron::emulate {

/// "isochron-4711-81533": this process's number and when it started, since numbers come back.
[[nodiscard]] std::string owner_name();

/// Whether `name` is such a name and its process is gone. Whatever follows another dash does not matter. So is
/// "isochron-mpi-4711-" with more behind it, for as long as nobody has that number: the folder of a worker without
/// a launcher in which MPI starts (comm/mpi_session.cc).
[[nodiscard]] bool is_orphan(std::string_view name);

}  // namespace isochron::emulate
