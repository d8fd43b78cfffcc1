// What the optimizers of a sharded parameter server have learned, in the form of the user's own optimizer and back, so
// that a checkpoint is the same whichever way a job trains.
#pragma once

#include "isochron/engine/async/tensor_layout.h"
#include "isochron/engine/exchange.h"
#include "isochron/server/parameter_server.h"

namespace torch::optim {
class Optimizer;
}

namespace isochron {

// Local: the chunks' optimizers go on from what `whole` has learned.
void spread_optimizer_state(
    const torch::optim::Optimizer& whole, const TensorLayout& layout, server::ParameterServer::Chunks& chunks);

// Collective, at a barrier: `whole` learns what all chunks have. `chunks`: of this rank's server, null if it has none;
// server n is rank `first_server` + n.
void gather_optimizer_state(
    const Group& group,
    int first_server,
    const TensorLayout& layout,
    server::ParameterServer::Chunks* chunks,
    torch::optim::Optimizer& whole);

}  // namespace isochron
