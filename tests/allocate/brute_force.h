// The allocator's reference: every legal split, one by one. For a handful of workers and a few dozen samples.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "isochron/core/allocate/allocate.h"

namespace isochron::reference {

/// The moment at which the last worker is finished.
inline double bottleneck(std::span<const Slot> slots, std::span<const std::int64_t> batch_sizes) {
  double seconds = 0.0;
  for (std::size_t k = 0; k < slots.size(); ++k) {
    seconds = std::max(seconds, slots[k].offset_seconds + slots[k].curve.seconds(static_cast<double>(batch_sizes[k])));
  }
  return seconds;
}

class BruteForce {
 public:
  BruteForce(std::span<const Slot> slots, std::int64_t global_batch)
      : slots_(slots),
        smallest_(std::ranges::min(slots, {}, &Slot::granularity).granularity),
        remainder_(global_batch % smallest_),
        batch_sizes_(slots.size(), 0) {
    visit(0, global_batch, remainder_ != 0);
  }

  /// Nothing if no split is legal.
  [[nodiscard]] std::optional<double> best_seconds() const { return best_; }

 private:
  void visit(std::size_t k, std::int64_t left, bool remainder_open) {
    if (k == slots_.size()) {
      if (left == 0 && !remainder_open) {
        const double seconds = bottleneck(slots_, batch_sizes_);
        best_ = best_ ? std::min(*best_, seconds) : seconds;
      }
      return;
    }
    const Slot& slot = slots_[k];
    for (std::int64_t multiple = 0; multiple <= left; multiple += slot.granularity) {
      if (multiple < slot.min_batch) {
        continue;
      }
      take(k, multiple, left, remainder_open);
      if (remainder_open && slot.granularity == smallest_) {
        take(k, multiple + remainder_, left, false);
      }
    }
  }

  void take(std::size_t k, std::int64_t batch, std::int64_t left, bool remainder_open) {
    if (batch <= left && batch <= slots_[k].max_batch) {
      batch_sizes_[k] = batch;
      visit(k + 1, left - batch, remainder_open);
    }
  }

  std::span<const Slot> slots_;
  std::int64_t smallest_;
  std::int64_t remainder_;
  std::vector<std::int64_t> batch_sizes_;
  std::optional<double> best_;
};

}  // namespace isochron::reference
