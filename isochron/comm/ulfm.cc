#include "isochron/comm/ulfm.h"

#include <algorithm>
#include <numeric>

#include <mpi-ext.h>

#include "isochron/comm/mpi_call.h"

namespace isochron {
namespace {

// Bits of a vote.
constexpr int kInFavour = 1;
constexpr int kCast = 2;

/// The ranks that the members of a group, which is freed, have in `comm`.
std::vector<int> ranks_of(MPI_Group failed, MPI_Comm comm) {
  int count = 0;
  MPI_Group_size(failed, &count);
  std::vector<int> in_failed(static_cast<std::size_t>(count));
  std::iota(in_failed.begin(), in_failed.end(), 0);
  std::vector<int> ranks(in_failed.size());
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Comm_group(comm, &all);
  MPI_Group_translate_ranks(failed, count, in_failed.data(), all, ranks.data());
  MPI_Group_free(&failed);
  MPI_Group_free(&all);
  return ranks;
}

}  // namespace

bool has_ulfm() {
  return true;
}

void revoke(MPI_Comm comm) {
  MPIX_Comm_revoke(comm);
}

bool is_revoked(MPI_Comm comm) {
  int revoked = 0;
  MPIX_Comm_is_revoked(comm, &revoked);
  return revoked != 0;
}

std::vector<int> failed_ranks(MPI_Comm comm) {
  MPI_Group failed = MPI_GROUP_NULL;
  if (MPIX_Comm_failure_ack(comm) != MPI_SUCCESS || MPIX_Comm_failure_get_acked(comm, &failed) != MPI_SUCCESS) {
    return {};
  }
  return ranks_of(failed, comm);
}

bool is_lost(MPI_Comm comm, int rank) {
  MPI_Group failed = MPI_GROUP_NULL;
  if (MPIX_Comm_get_failed(comm, &failed) != MPI_SUCCESS) {
    return false;
  }
  return std::ranges::count(ranks_of(failed, comm), rank) > 0;
}

MPI_Comm shrink(MPI_Comm comm) {
  MPI_Comm survivors = MPI_COMM_NULL;
  check_mpi(MPIX_Comm_shrink(comm, &survivors), "MPIX_Comm_shrink");
  MPI_Comm_set_errhandler(survivors, MPI_ERRORS_RETURN);
  return survivors;
}

Vote::Vote(MPI_Comm comm, bool in_favour) : comm_(comm), in_favour_(in_favour) {
  cast();
}

void Vote::cast() {
  flag_ = kCast | (in_favour_ ? kInFavour : 0);
  ended_ = MPIX_Comm_iagree(comm_, &flag_, &request_) != MPI_SUCCESS;
}

bool Vote::test() {
  if (ended_) {
    return true;
  }
  int ended = 0;
  const int code = MPI_Test(&request_, &ended, MPI_STATUS_IGNORE);
  if (code == MPI_SUCCESS && ended != 0 && (flag_ & kCast) == 0) {
    cast();
    return ended_;
  }
  ended_ = code != MPI_SUCCESS || ended != 0;
  won_ = code == MPI_SUCCESS && ended != 0 && (flag_ & kInFavour) != 0;
  return ended_;
}

}  // namespace isochron
