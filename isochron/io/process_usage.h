// Where this process runs, and what it takes of its machine.
#pragma once

#include <string>

#include "isochron/core/telemetry.h"

namespace isochron::io {

/// CPU time of all threads of this process, so far.
double cpu_seconds();

/// The usage of `seconds` that have just passed, at whose beginning cpu_seconds() was `cpu_began`.
MachineUsage process_usage(double cpu_began, double seconds);

[[nodiscard]] std::string host_name();

}  // namespace isochron::io
