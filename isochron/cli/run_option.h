// RUN on the command line of what looks at runs: a run log, or the process number of an `isochron launch` whose command
// writes one.
#pragma once

#include <string>

namespace isochron::cli {

/// The log's file. A name that is no number, or is that of a file, is taken as it is. Throws std::invalid_argument if
/// it is the number of no such launcher.
[[nodiscard]] std::string run_log_of(const std::string& run);

}  // namespace isochron::cli
