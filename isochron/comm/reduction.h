// The arithmetic of all-reduce and reduce-scatter in MPI's terms. Half and BFloat16, which MPI does not know, travel as
// 16-bit words and are reduced by functions of ours, each addition in Float and rounded to nearest as PyTorch does.
#pragma once

#include <map>
#include <mutex>
#include <utility>

#include <c10/core/ScalarType.h>
#include <mpi.h>

namespace isochron {

enum class Reduction { kSum, kProduct, kMin, kMax, kBitAnd, kBitOr, kBitXor };

// Throws std::invalid_argument for element types that cannot be reduced.
MPI_Datatype mpi_type(c10::ScalarType type);

// The operations of one backend. Thread-safe; MPI must be alive when it goes.
class MpiReductions {
 public:
  MpiReductions() = default;
  MpiReductions(const MpiReductions&) = delete;
  MpiReductions& operator=(const MpiReductions&) = delete;
  ~MpiReductions();

  MPI_Op operation(Reduction reduction, c10::ScalarType type);

 private:
  std::mutex mutex_;
  std::map<std::pair<Reduction, c10::ScalarType>, MPI_Op> own_;
};

}  // namespace isochron
