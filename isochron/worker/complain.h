// Errors of a worker on standard error. All workers of a job usually make the same mistake, since they are started by
// the same words; one line should say so, not one for each.
#pragma once

#include <string>

namespace isochron::worker {

/// Shows `text`. If `status` says bad usage and mpirun started us, the workers of this host agree on one that shows it.
void complain(const std::string& text, int status);

}  // namespace isochron::worker
