// The handshake of a job: what its workers must share, and what each says of itself.
#pragma once

#include <vector>

#include "isochron/core/worker.h"
#include "isochron/engine/exchange.h"

namespace isochron {

struct JobOptions;

// Collective. All workers' descriptions, by rank, which is their id. Throws std::invalid_argument on all of them,
// naming option, ranks and values, if they do not share what they must.
std::vector<Worker> agree(const Group& group, const JobOptions& options);

// Whether some worker computes its batch in pieces. Collective.
bool any_in_pieces(const Group& group, const JobOptions& options);

}  // namespace isochron
