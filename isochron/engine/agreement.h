// The handshake of a job: what its workers must share, and what each says of itself.
#pragma once

#include <string>
#include <vector>

#include "isochron/core/worker.h"
#include "isochron/engine/exchange.h"

namespace isochron {

struct JobOptions;

// This worker as it describes itself; it has no id yet.
Worker describe(const JobOptions& options);

// Collective. All workers' descriptions, by rank, which is their id. Throws std::invalid_argument on all of them,
// naming option, ranks and values, if they do not share what they must.
std::vector<Worker> agree(const Group& group, const JobOptions& options);

// Whether some worker computes its batch in pieces. Collective.
bool any_in_pieces(const Group& group, const JobOptions& options);

// What a newcomer says before it may join, and why a worker of the job would not have it; empty if it would.
std::string introduction(const JobOptions& options);
std::string objection(const std::string& introduction, const JobOptions& options);

}  // namespace isochron
