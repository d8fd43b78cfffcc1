#include "isochron/comm/ulfm.h"

#include <numeric>

#include <mpi-ext.h>

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

}  // namespace isochron
