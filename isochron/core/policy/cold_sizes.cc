#include "isochron/core/policy/cold_sizes.h"

#include <algorithm>

namespace isochron {

void ColdSizes::observe(const Reading& reading) {
  constexpr std::int64_t kLongestMemory = 8;  // differences
  if (reading.cold) {
    // A worker's very first step is longer still, for libraries that are loaded once: it says nothing about a size.
    const bool first = cold_steps_++ == 0;
    pending_batch_ = first ? 0 : reading.batch;
    pending_seconds_ = first ? 0.0 : reading.seconds;
    if (const auto place = std::ranges::lower_bound(known_, reading.batch);
        place == known_.end() || *place != reading.batch) {
      known_.insert(place, reading.batch);
    }
  } else if (reading.valid && pending_batch_ > 0) {
    if (reading.batch == pending_batch_) {
      differences_ = std::min(differences_ + 1, kLongestMemory);
      const double difference = std::max(0.0, pending_seconds_ - reading.seconds);
      mean_difference_ += (difference - mean_difference_) / static_cast<double>(differences_);
    }
    pending_batch_ = 0;
    pending_seconds_ = 0.0;
  }
}

double ColdSizes::seconds(std::int64_t batch) const {
  return batch == 0 || std::ranges::binary_search(known_, batch) ? 0.0 : mean_difference_;
}

void ColdSizes::exchange(StateExchange& state) {
  state.field("known", known_);
  std::ranges::sort(known_);
  state.field("steps", cold_steps_);
  state.field("pending_batch", pending_batch_);
  state.field("pending_seconds", pending_seconds_);
  state.field("differences", differences_);
  state.field("mean_difference", mean_difference_);
}

}  // namespace isochron
