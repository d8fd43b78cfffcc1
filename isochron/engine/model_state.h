// A job as a checkpoint: the tensors of its models and optimizers, and the rest of its state (Replica::state) as text.
#pragma once

#include <string>

#include "isochron/core/state.h"
#include "isochron/engine/checkpoint.h"
#include "isochron/engine/models.h"

namespace isochron {

Checkpoint pack_job(const State& rest, const Models& models, const Optimizers& optimizers);
// Fills models and optimizers and returns the rest. `name` is what errors call the checkpoint. Throws isochron::Error
// if it is not one of such a job, or of another number of models or optimizers.
State unpack_job(
    const Checkpoint& checkpoint, const std::string& name, const Models& models, const Optimizers& optimizers);

}  // namespace isochron
