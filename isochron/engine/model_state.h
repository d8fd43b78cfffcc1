// A job as a checkpoint: the tensors of its model and optimizer, and the rest of its state (Replica::state) as a text.
#pragma once

#include <string>

#include "isochron/core/state.h"
#include "isochron/engine/checkpoint.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace isochron {

Checkpoint pack_job(const State& rest, const torch::nn::Module& model, const torch::optim::Optimizer& optimizer);
// Fills model and optimizer and returns the rest. `name` is what errors call the checkpoint. Throws isochron::Error if
// it is not one of such a job.
State unpack_job(
    const Checkpoint& checkpoint,
    const std::string& name,
    torch::nn::Module& model,
    torch::optim::Optimizer& optimizer);

}  // namespace isochron
