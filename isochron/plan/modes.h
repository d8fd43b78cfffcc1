// How workers should keep in step over a given network: what a step of every --sync and --compression would take, less
// the asynchronous modes, of which simulate knows more. Pure; O(K) each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isochron/plan/predict.h"

namespace isochron::plan {

struct Mode {
  std::string options;  // of the job
  double samples_per_second = 0.0;
  double exchange_share = 0.0;   // of the time
  std::int64_t round_steps = 1;  // of a local round: as many as core/replica/rounds.h would choose
};

/// From the one that changes training least: in step, with fewer bytes, in local rounds. `global_batch` must fit into
/// the machines' bounds.
[[nodiscard]] std::vector<Mode> predict_modes(
    const std::vector<Group>& groups, const Exchange& exchange, std::int64_t global_batch);

/// The first within 10 % of the fastest.
[[nodiscard]] const Mode& least_near_best(const std::vector<Mode>& modes);

}  // namespace isochron::plan
