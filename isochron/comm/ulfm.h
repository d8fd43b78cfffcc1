// What MPI can do about lost ranks beyond the standard (User-Level Failure Mitigation). CMake picks ulfm.cc, or
// no_ulfm.cc where MPI lacks it: there nothing is known and nothing happens.
#pragma once

#include <vector>

#include <mpi.h>

namespace isochron {

bool has_ulfm();

// Makes every operation on the communicator, also of other ranks, end with an error.
void revoke(MPI_Comm comm);

// Ranks known to have died.
std::vector<int> failed_ranks(MPI_Comm comm);

}  // namespace isochron
