// The exact split of a global batch over unequal workers.
//
//   minimise   max_k  offset_k + t_k(b_k)
//   such that  sum_k b_k = B,   min_k <= b_k <= max_k,   b_k a multiple of g_k
//
// Optimal for every non-decreasing curve, not approximate; ties go to the worker that comes first. If the smallest
// granularity does not divide B, one worker of that granularity takes the remainder on top of its multiple: the
// multiple keeps its lower bound, the whole keeps its upper bound. The granularities must divide one another (1, 8,
// 16): any other mix is refused, since it makes the problem a knapsack.
//
// With one granularity, the workers share out units in the order of the time at which each would be finished, so the
// split is also the best below the bottleneck. About 10 passes over the workers, whatever B; a mix of granularities
// costs about three times as much. Pure functions; safe to call from several threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isochron/core/curve/curve.h"

namespace isochron {

/// One worker, as the allocator sees it.
struct Slot {
  Curve curve;
  double offset_seconds = 0.0;        // time that passes whatever the batch: communication that cannot overlap; >= 0
  std::int64_t min_batch = 0;         // >= 0; rounded up to a multiple of the granularity
  std::int64_t max_batch = kNoLimit;  // >= min_batch; rounded down to a multiple of the granularity
  std::int64_t granularity = 1;       // >= 1
};

struct Allocation {
  std::vector<std::int64_t> batch_sizes;  // in the order of the slots
  double seconds = 0.0;                   // the value of the objective
};

/// The largest B: far beyond any use, and small enough that no sum over a million workers overflows.
inline constexpr std::int64_t kMaxGlobalBatch = std::int64_t{1} << 40;

/// Throws std::invalid_argument if no split exists whatever the time; the text names the sum of the bounds and B.
void check_feasible(std::span<const Slot> slots, std::int64_t global_batch);

/// Throws like check_feasible.
[[nodiscard]] Allocation allocate(std::span<const Slot> slots, std::int64_t global_batch);

}  // namespace isochron
