#include "isochron/comm/ulfm.h"

#include <numeric>

#include <mpi-ext.h>

#include "isochron/comm/mpi_call.h"

namespace isochron {

bool has_ulfm() {
  return true;
}

void revoke(MPI_Comm comm) {
  MPIX_Comm_revoke(comm);
}

std::vector<int> failed_ranks(MPI_Comm comm) {
  MPI_Group failed = MPI_GROUP_NULL;
  if (MPIX_Comm_failure_ack(comm) != MPI_SUCCESS || MPIX_Comm_failure_get_acked(comm, &failed) != MPI_SUCCESS) {
    return {};
  }
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

MPI_Comm shrink(MPI_Comm comm) {
  MPI_Comm survivors = MPI_COMM_NULL;
  check_mpi(MPIX_Comm_shrink(comm, &survivors), "MPIX_Comm_shrink");
  MPI_Comm_set_errhandler(survivors, MPI_ERRORS_RETURN);
  return survivors;
}

Vote::Vote(MPI_Comm comm, bool in_favour) : flag_(in_favour ? 1 : 0) {
  ended_ = MPIX_Comm_iagree(comm, &flag_, &request_) != MPI_SUCCESS;
}

bool Vote::test() {
  int ended = 0;
  if (!ended_) {
    const int code = MPI_Test(&request_, &ended, MPI_STATUS_IGNORE);
    ended_ = code != MPI_SUCCESS || ended != 0;
    won_ = code == MPI_SUCCESS && ended != 0 && flag_ != 0;
  }
  return ended_;
}

}  // namespace isochron
