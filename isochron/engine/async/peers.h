// Where the processes of a group are, for errors and for killing one that does not answer.
#pragma once

#include <vector>

#include "isochron/core/peer_error.h"
#include "isochron/engine/exchange.h"

namespace isochron {

// Collective. By rank.
std::vector<Peer> gather_peers(const Group& group);

}  // namespace isochron
