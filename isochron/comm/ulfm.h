// What MPI can do about lost ranks beyond the standard (User-Level Failure Mitigation). CMake picks ulfm.cc, or
// no_ulfm.cc where MPI lacks it: there nothing is known, nothing happens, and nothing can be saved.
#pragma once

#include <vector>

#include <mpi.h>

namespace isochron {

bool has_ulfm();

// Makes every operation on the communicator, also of other ranks, end with an error.
void revoke(MPI_Comm comm);

// Whether a rank has done so.
bool is_revoked(MPI_Comm comm);

// Ranks known to have died. From now on they no longer make receives from anybody, and votes, fail.
std::vector<int> failed_ranks(MPI_Comm comm);

// Whether this one has; votes stay as they are.
bool is_lost(MPI_Comm comm, int rank);

// Collective over those who live: a communicator of them, in the order of their ranks. Blocks until all of them call
// it. Throws PeerLostError.
MPI_Comm shrink(MPI_Comm comm);

// Collective over those who live: starts a vote that is won if everybody votes for it and nobody is lost. All get the
// same result, even on a communicator that was revoked.
//
// With several threads at work Open MPI 5.0.11 now and then answers 0 to all, whatever they said (one of 50 votes on a
// busy machine). Every vote therefore carries a bit that all set: without it in the result, all vote once more.
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
  void cast();

  // Some of them without a use where there is no ULFM.
  [[maybe_unused]] const MPI_Comm comm_;
  const bool in_favour_;
  [[maybe_unused]] int flag_ = 0;
  [[maybe_unused]] MPI_Request request_ = MPI_REQUEST_NULL;
  bool ended_ = false;
  bool won_ = false;
};

}  // namespace isochron
