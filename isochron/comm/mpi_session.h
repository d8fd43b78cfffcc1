// MPI from start to end of a process: the first object of main. Works under mpirun and srun, and alone as a world of
// one, which opens no port and shares no memory (unless OMPI_MCA_btl says otherwise, as one that starts others needs it).
#pragma once

namespace isochron {

class MpiSession {
 public:
  // Throws isochron::Error if this MPI cannot serve several threads.
  MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  // Everything that communicates must be gone by now.
  ~MpiSession();

  // From now on the process ends within seconds once main has, and as main did, whatever MPI does: where workers have
  // joined and others were lost, MPI_Finalize of Open MPI 5.0.11 may wait for ever, or write beyond its list of
  // communicators and crash (ompi_dpm_dyn_finalize).
  static void end_in_time();
};

// Starts MPI, to the end of the process, if nobody has.
void start_mpi();

}  // namespace isochron
