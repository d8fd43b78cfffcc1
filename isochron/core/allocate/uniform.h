// The split over workers that all share one granularity: the case that has to be fast.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isochron/core/allocate/units.h"

namespace isochron::detail {

/// Whether any split of `total` keeps the bounds.
bool uniform_feasible(std::span<const Slot> slots, std::int64_t total);

/// An optimal split of `total`, which must be feasible. Units go out in the order of (finishing time, worker); the
/// remainder that is no full unit goes on top where it is finished first.
std::vector<std::int64_t> split_uniform(std::span<const Slot> slots, std::int64_t total);

}  // namespace isochron::detail
