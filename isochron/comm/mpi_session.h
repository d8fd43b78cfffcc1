// MPI from start to end of a process: the first object of main. Works under mpirun and srun, and alone as a world of
// one.
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
};

}  // namespace isochron
