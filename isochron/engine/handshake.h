// The handshake of a job: what its workers must share, and what each says of itself (core/replica/introduction.h).
#pragma once

#include <vector>

#include "isochron/core/replica/introduction.h"
#include "isochron/core/replica/replica.h"
#include "isochron/core/worker.h"
#include "isochron/engine/exchange.h"

namespace isochron {

struct JobOptions;

// What this worker says before it takes part; also a newcomer, to a job that is running.
Introduction introduce(const JobOptions& options);

// Collective. All workers' descriptions, by rank, which is their id. Throws std::invalid_argument on all of them,
// naming option, ranks and values, if they do not share what they must, or if rank 0 cannot read what start_from names.
std::vector<Worker> agree(const Group& group, const JobOptions& options);

}  // namespace isochron
