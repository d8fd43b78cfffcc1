// MPI reports by return code; here every code but success becomes an exception. A dead peer shows itself by any of
// them, not only by MPI_ERR_PROC_FAILED.
#pragma once

#include <string>

#include <mpi.h>

#include "isochron/core/peer_error.h"

namespace isochron {

inline std::string mpi_error_text(int code) {
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  text.resize(static_cast<std::size_t>(length));
  return text;
}

inline void check_mpi(int code, const char* call) {
  if (code != MPI_SUCCESS) {
    throw PeerLostError(std::string(call).append(": ").append(mpi_error_text(code)), {});
  }
}

}  // namespace isochron
