// What to assume of workers that nothing is known of: the median of their kind.
#pragma once

#include <vector>

#include "isochron/core/worker.h"

namespace isochron {

/// `values` (one per worker, > 0 or 0 for unknown) with every 0 replaced by the median of the known values of the same
/// kind of worker, of all workers if that kind is unknown too, and by 1 if nothing is known at all. O(K log K).
[[nodiscard]] std::vector<double> fill_by_kind(const Roster& roster, std::vector<double> values);

}  // namespace isochron
