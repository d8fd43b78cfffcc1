#include "isochron/sim/judge.h"

#include <algorithm>
#include <cmath>

#include "isochron/core/predict/expected_max.h"

namespace isochron::sim {

bool Judge::is_good(const Fleet& fleet, std::span<const std::int64_t> batch_sizes) {
  constexpr double kNear = 1.03;
  std::vector<double> speeds;
  speeds.reserve(batch_sizes.size());
  for (const Member& member : fleet.members()) {
    speeds.push_back(fleet.speed(member.index));
  }
  if (speeds != speeds_ || !std::ranges::equal(batch_sizes, batch_sizes_)) {
    speeds_ = std::move(speeds);
    batch_sizes_.assign(batch_sizes.begin(), batch_sizes.end());
    fleet.true_slots(slots_);
    if (units_per_sample_ > 1) {
      for (Slot& slot : slots_) {
        slot = {.curve = slot.curve.in_units_of(1.0 / static_cast<double>(units_per_sample_))};
      }
    }
    const Allocation best = allocate(slots_, global_batch_);
    good_ = expected_seconds(fleet, batch_sizes) <= kNear * expected_seconds(fleet, best.batch_sizes);
  }
  return good_;
}

double Judge::expected_seconds(const Fleet& fleet, std::span<const std::int64_t> batch_sizes) {
  log_seconds_.clear();
  sigmas_.clear();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (batch_sizes[i] > 0) {
      log_seconds_.push_back(std::log(slots_[i].curve.seconds(static_cast<double>(batch_sizes[i]))));
      sigmas_.push_back(fleet.sigma(fleet.members()[i].index));
    }
  }
  return expected_max(log_seconds_, sigmas_);
}

}  // namespace isochron::sim
