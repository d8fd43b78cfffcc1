#include "isochron/comm/ulfm.h"
#include "isochron/core/peer_error.h"

namespace isochron {

bool has_ulfm() {
  return false;
}

void revoke(MPI_Comm /*comm*/) {
}

bool is_revoked(MPI_Comm /*comm*/) {
  return false;
}

std::vector<int> failed_ranks(MPI_Comm /*comm*/) {
  return {};
}

bool is_lost(MPI_Comm /*comm*/, int /*rank*/) {
  return false;
}

MPI_Comm shrink(MPI_Comm /*comm*/) {
  throw PeerLostError("this MPI cannot go on without a lost rank (it has no ULFM)", {});
}

// Whoever fails ends the job for all, so the others need not ask.
Vote::Vote(MPI_Comm comm, bool in_favour) : comm_(comm), in_favour_(in_favour) {
  cast();
}

void Vote::cast() {
  ended_ = true;
  won_ = in_favour_;
}

bool Vote::test() {
  return ended_;
}

}  // namespace isochron
