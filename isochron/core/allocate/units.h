// Batches counted in units of a worker's granularity; what the parts of the allocator share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "isochron/core/allocate/allocate.h"

namespace isochron::detail {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// What a slot may take of a batch of `total`: `first` units that it must take and up to `more` on top.
struct UnitBounds {
  std::int64_t first = 0;
  std::int64_t more = 0;  // negative: no multiple of the granularity keeps the bounds
};

inline UnitBounds unit_bounds(const Slot& slot, std::int64_t total) {
  const std::int64_t g = slot.granularity;
  const std::int64_t first = slot.min_batch / g + (slot.min_batch % g != 0 ? 1 : 0);
  return {.first = first, .more = std::min(slot.max_batch, total) / g - first};
}

/// When the slot has finished `batch` samples. Non-decreasing in spite of rounding: the allocator's optimum is exact
/// with respect to these numbers.
inline double finish_seconds(const Slot& slot, std::int64_t batch) {
  return slot.offset_seconds + slot.curve.seconds(static_cast<double>(batch));
}

/// Whether `extra` samples on top of `batch` keep the upper bound.
inline bool has_room(const Slot& slot, std::int64_t batch, std::int64_t extra) {
  return extra <= slot.max_batch - batch;
}

/// How many of the units in `bounds.more` the slot finishes within `seconds`; exact. `guess` is where to look first.
std::int64_t units_within(const Slot& slot, const UnitBounds& bounds, double seconds, double guess);

}  // namespace isochron::detail
