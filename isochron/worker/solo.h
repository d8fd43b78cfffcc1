// How fast each worker is by itself, while all compute at once and nobody waits: what a perfect split would add up to.
#pragma once

#include <cstdint>
#include <vector>

#include "isochron/train/trainer.h"

namespace isochron::worker {

/// Collective. Samples per second by rank, each measured for `seconds` at about the batch that a proportional split of
/// the global batch gives it, since speed depends on the batch.
[[nodiscard]] std::vector<double> solo_speeds(train::Trainer& trainer, std::int64_t global_batch, double seconds);

}  // namespace isochron::worker
