#include "isochron/comm/mpi_session.h"

#include <cstdlib>

#include <mpi.h>

#include "isochron/comm/mpi_call.h"

namespace isochron {

MpiSession::MpiSession() {
  // Open MPI's other algorithms for the non-blocking all-reduce need twice the time for large messages. Other
  // implementations ignore the variable; a value from mpirun --mca or the user's environment wins.
  setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "3", /*overwrite=*/0);
  // Among workers of which some joined later, ranks do not agree on whether its collectives by hosts are to be used,
  // and wait for each other (5.0.11). Ours are not among them.
  setenv("OMPI_MCA_coll", "^han", /*overwrite=*/0);
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    throw Error("this MPI does not support MPI_THREAD_MULTIPLE; use a build that does");
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

MpiSession::~MpiSession() {
  MPI_Finalize();
}

}  // namespace isochron
