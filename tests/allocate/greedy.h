// The allocator's definition for one granularity, unit by unit: the next unit goes to the worker that would finish it
// first, the earlier worker if several would.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "isochron/core/allocate/allocate.h"

namespace isochron::reference {

/// `global_batch` must be feasible and a multiple of the granularity.
inline std::vector<std::int64_t> greedy(std::span<const Slot> slots, std::int64_t global_batch) {
  const std::int64_t unit = slots.front().granularity;
  std::vector<std::int64_t> batch_sizes;
  std::int64_t left = global_batch;
  for (const Slot& slot : slots) {
    batch_sizes.push_back((slot.min_batch + unit - 1) / unit * unit);
    left -= batch_sizes.back();
  }
  for (; left > 0; left -= unit) {
    double first_seconds = std::numeric_limits<double>::infinity();
    std::size_t first = 0;
    for (std::size_t k = 0; k < slots.size(); ++k) {
      const std::int64_t batch = batch_sizes[k] + unit;
      const double seconds = slots[k].offset_seconds + slots[k].curve.seconds(static_cast<double>(batch));
      if (batch <= slots[k].max_batch && seconds < first_seconds) {
        first_seconds = seconds;
        first = k;
      }
    }
    batch_sizes[first] += unit;
  }
  return batch_sizes;
}

}  // namespace isochron::reference
