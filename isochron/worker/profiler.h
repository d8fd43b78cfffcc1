// Measures what a model takes on this machine, one cost at a time, for the planner.
#pragma once

#include <cstdint>
#include <functional>

#include "isochron/plan/profile.h"
#include "isochron/train/options.h"

namespace isochron::worker {

/// After every batch size of every round.
struct ProfileNews {
  std::int64_t batch = 0;
  double seconds = 0.0;  // median of this round
  double done = 0.0;     // of all that is to be measured, 0 to 1
  double left_seconds = 0.0;
};

struct ProfilerOptions {
  train::Options training;     // model, dataset, device, threads, optimizer
  std::int64_t min_batch = 1;  // the sizes are this, twice it, four times it, …
  std::int64_t max_batch = 512;
  double seconds = 60.0;  // that measuring takes, about; sizes that would take too much of it are left out
  std::function<void(const ProfileNews&)> on_news;  // on the first worker; empty: silence
};

struct ProfilerResults {
  bool first = false;  // whether this worker is the one to write it
  plan::Profile profile;
};

/// Collective. Several workers measure at the same time, as they would compute in a job, each for itself. Rounds over
/// all sizes, so that a machine whose speed drifts is the same for all. Ends with a smaller size when memory is out.
[[nodiscard]] ProfilerResults measure_profile(const ProfilerOptions& options);

}  // namespace isochron::worker
