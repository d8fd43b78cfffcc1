// Legal splits: the batch sizes add up to B exactly, each within its worker's bounds and a multiple of its granularity
// (allocate.h says who takes the remainder when the smallest granularity does not divide B).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "isochron/core/worker.h"

namespace isochron {

/// `wished` as whole numbers if it is a legal split as it stands. O(K).
std::optional<std::vector<std::int64_t>> as_legal(const Roster& roster, std::span<const double> wished);

/// The legal split nearest to `wished` in the sum of squared differences; wishes are first brought into 0..B, and one
/// that is not a number counts as B / K. Exact while all granularities are equal, otherwise within one coarse unit a
/// worker. Throws std::invalid_argument if the bounds or granularities permit no split at all.
std::vector<std::int64_t> nearest_legal(const Roster& roster, std::span<const double> wished);

}  // namespace isochron
