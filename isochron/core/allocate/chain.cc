#include "isochron/core/allocate/chain.h"

#include <bit>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace isochron::detail {

std::vector<std::int64_t> granularity_chain(std::span<const Slot> slots) {
  const std::int64_t front = slots.front().granularity;
  if (std::ranges::all_of(slots, [&](const Slot& slot) { return slot.granularity == front; })) {
    return {front};
  }
  std::vector<std::int64_t> chain;
  for (const Slot& slot : slots) {
    const auto place = std::ranges::lower_bound(chain, slot.granularity);
    if (place == chain.end() || *place != slot.granularity) {
      chain.insert(place, slot.granularity);
    }
  }
  for (std::size_t i = 1; i < chain.size(); ++i) {
    if (chain[i] % chain[i - 1] != 0) {
      throw std::invalid_argument(
          "granularities " + std::to_string(chain[i - 1]) + " and " + std::to_string(chain[i]) +
          " do not divide one another; permitted: granularities each of which divides every larger one");
    }
  }
  return chain;
}

Chain::Chain(std::span<const Slot> slots, std::vector<std::int64_t> granularities, std::int64_t global_batch)
    : slots_(slots),
      granularities_(std::move(granularities)),
      first_(granularities_.size(), 0),
      remainder_(global_batch % granularities_.front()),
      need_(global_batch - remainder_) {
  for (const Slot& slot : slots_) {
    rung_.push_back(
        static_cast<std::size_t>(std::ranges::lower_bound(granularities_, slot.granularity) - granularities_.begin()));
    bounds_.push_back(unit_bounds(slot, global_batch));
    if (bounds_.back().more < 0) {
      need_ = -1;
      return;
    }
    const std::int64_t first = bounds_.back().first * slot.granularity;
    first_[rung_.back()] += first;
    need_ -= first;
    if (need_ < 0) {
      return;
    }
  }
}

std::vector<std::int64_t> Chain::units_within(double seconds) const {
  std::vector<std::int64_t> units(granularities_.size(), 0);
  bool remainder_placed = remainder_ == 0;
  for (std::size_t k = 0; k < slots_.size(); ++k) {
    const Slot& slot = slots_[k];
    const UnitBounds& bounds = bounds_[k];
    if (finish_seconds(slot, bounds.first * slot.granularity) > seconds) {
      return {};
    }
    const double guess = slot.curve.capacity(seconds - slot.offset_seconds) / static_cast<double>(slot.granularity) -
                         static_cast<double>(bounds.first);
    const std::int64_t more = detail::units_within(slot, bounds, seconds, guess);
    std::int64_t& sum = units[rung_[k]];
    sum = std::min(sum + more, need_ + 1);
    if (!remainder_placed && rung_[k] == 0) {
      const std::int64_t batch = (bounds.first + more) * slot.granularity;
      remainder_placed = has_room(slot, batch, remainder_) && finish_seconds(slot, batch + remainder_) <= seconds;
    }
  }
  if (!remainder_placed) {
    --units.front();  // some worker gives up its last unit for the remainder, which is smaller
  }
  return units;
}

bool Chain::feasible_within(double seconds) const {
  if (need_ < 0) {
    return false;
  }
  const std::vector<std::int64_t> units = units_within(seconds);
  if (units.empty()) {
    return false;
  }
  std::int64_t need = need_ / granularities_.front();
  std::int64_t have = units.front();
  for (std::size_t i = 1; i < units.size(); ++i) {
    const std::int64_t bundle = granularities_[i] / granularities_[i - 1];
    const std::int64_t loose = need % bundle;
    if (have < loose) {
      return false;
    }
    need /= bundle;
    have = units[i] + (have - loose) / bundle;
  }
  return have >= need;
}

double Chain::smallest_feasible() const {
  // The bit patterns of non-negative floating-point numbers are ordered like the numbers.
  auto low = std::bit_cast<std::uint64_t>(0.0);
  auto high = std::bit_cast<std::uint64_t>(std::numeric_limits<double>::infinity());
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (feasible_within(std::bit_cast<double>(middle))) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return std::bit_cast<double>(high);
}

std::vector<std::int64_t> Chain::optimal_totals() const {
  const std::vector<std::int64_t> units = units_within(smallest_feasible());
  std::vector<std::int64_t> totals = first_;
  std::int64_t need = need_;
  for (std::size_t i = units.size() - 1; i > 0; --i) {
    const std::int64_t own = std::min(units[i], need / granularities_[i]) * granularities_[i];
    totals[i] += own;
    need -= own;
  }
  totals.front() += need + remainder_;
  return totals;
}

}  // namespace isochron::detail
