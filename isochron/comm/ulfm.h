// What MPI can do about lost ranks beyond the standard (User-Level Failure Mitigation). CMake picks ulfm.cc, or
// no_ulfm.cc where MPI lacks it: there nothing is known, nothing happens, and nothing can be saved.
#pragma once

#include <vector>

#include <mpi.h>

namespace isochron {

bool has_ulfm();

// Makes every operation on the communicator, also of other ranks, end with an error.
void revoke(MPI_Comm comm);

// Ranks known to have died.
std::vector<int> failed_ranks(MPI_Comm comm);

// Collective over those who live: a communicator of them, in the order of their ranks. Blocks until all of them call
// it. Throws PeerLostError.
MPI_Comm shrink(MPI_Comm comm);

// Collective over those who live: starts a vote that is won if everybody votes for it and nobody is lost. All get the
// same result, even on a communicator that was revoked.
class Vote {
 public:
  Vote(MPI_Comm comm, bool in_favour);
  Vote(const Vote&) = delete;
  Vote& operator=(const Vote&) = delete;
  ~Vote() = default;

  // Whether the result is there.
  bool test();
  bool won() const { return won_; }

 private:
  int flag_ = 0;
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool ended_ = false;
  bool won_ = false;
};

}  // namespace isochron
