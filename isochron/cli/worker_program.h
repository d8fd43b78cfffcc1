// The program isochron-worker, which has the commands that need LibTorch and MPI.
#pragma once

#include <filesystem>

namespace isochron::cli {

/// It lies beside the running program. Throws std::invalid_argument if it is not there: this build has no engine.
[[nodiscard]] std::filesystem::path worker_program();

}  // namespace isochron::cli
