// What to choose: the global batch, and which machines are worth having.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "isochron/plan/predict.h"

namespace isochron::plan {

/// Steps at every power of two that the machines' bounds can hold, from the smallest that gives each its least share;
/// ends before a machine would take more than it was measured at, and at `most` samples. At least one. Throws
/// std::invalid_argument if there is no such batch at all.
[[nodiscard]] std::vector<Step> sweep(const std::vector<Group>& groups, const Exchange& exchange, std::int64_t most);

/// The first whose rate is at least `share` (0 to 1) of the highest: beyond it a larger batch costs steps of learning
/// and brings next to no speed.
[[nodiscard]] const Step& smallest_near_best(const std::vector<Step>& steps, double share);

/// Price of all machines for an hour.
[[nodiscard]] double price_per_hour(const std::vector<Group>& groups);

/// A set of machines with one machine of a group less or more, at the same global batch.
struct Alternative {
  Step step;
  double price_per_hour = 0.0;
};
struct Marginal {
  std::optional<Alternative> dropped;  // none: the others cannot hold the batch
  std::optional<Alternative> added;
};

/// By group.
[[nodiscard]] std::vector<Marginal> marginals(
    const std::vector<Group>& groups, const Exchange& exchange, std::int64_t global_batch);

}  // namespace isochron::plan
