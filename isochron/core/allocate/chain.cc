#include "isochron/core/allocate/chain.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "isochron/core/allocate/level.h"
#include "isochron/core/error.h"

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
      remainder_(global_batch % granularities_.front()),
      need_(global_batch - remainder_),
      reach_(slots.size()),
      first_(granularities_.size(), 0),
      units_(granularities_.size(), 0) {
  rung_.reserve(slots.size());
  bounds_.reserve(slots.size());
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

bool Chain::feasible() {
  if (need_ < 0) {
    return false;
  }
  for (std::size_t k = 0; k < slots_.size(); ++k) {
    reach(k, kInfinity, kInfinity);
  }
  return level_feasible();
}

std::vector<std::int64_t> Chain::optimal_totals() {
  start_below_optimum();
  advance_to_optimum();
  std::vector<std::int64_t> totals = first_;
  std::int64_t need = need_;
  for (std::size_t i = units_.size() - 1; i > 0; --i) {
    const std::int64_t own = std::min(units_[i], need / granularities_[i]) * granularities_[i];
    totals[i] += own;
    need -= own;
  }
  totals.front() += need + remainder_;
  return totals;
}

void Chain::reach(std::size_t k, double seconds, double guess) {
  const Slot& slot = slots_[k];
  Reach& reached = reach_[k];
  units_[rung_[k]] -= reached.units;
  remainder_places_ -= reached.remainder ? 1 : 0;
  reached.units = units_within(slot, bounds_[k], seconds, guess);
  if (takes_remainder(k)) {
    const std::int64_t batch = (bounds_[k].first + reached.units) * slot.granularity;
    reached.remainder = has_room(slot, batch, remainder_) && finish_seconds(slot, batch + remainder_) <= seconds;
  }
  units_[rung_[k]] += reached.units;
  remainder_places_ += reached.remainder ? 1 : 0;
}

bool Chain::level_feasible() const {
  std::int64_t need = need_ / granularities_.front();
  std::int64_t have = units_.front();
  if (remainder_ > 0 && remainder_places_ == 0) {
    --have;  // some worker gives up its last unit for the remainder, which is smaller
  }
  for (std::size_t i = 1; i < units_.size(); ++i) {
    const std::int64_t bundle = granularities_[i] / granularities_[i - 1];
    const std::int64_t loose = need % bundle;
    if (have < loose) {
      return false;
    }
    need /= bundle;
    have = units_[i] + (have - loose) / bundle;
  }
  return have >= need;
}

double Chain::next_seconds(std::size_t k) const {
  const std::int64_t g = slots_[k].granularity;
  const std::int64_t batch = (bounds_[k].first + reach_[k].units) * g;
  if (takes_remainder(k) && !reach_[k].remainder && has_room(slots_[k], batch, remainder_)) {
    return finish_seconds(slots_[k], batch + remainder_);
  }
  return reach_[k].units < bounds_[k].more ? finish_seconds(slots_[k], batch + g) : kInfinity;
}

void Chain::start_below_optimum() {
  const LevelSearch search(slots_, bounds_, need_);
  double level = search.level();
  double step = std::max(level * 0x1p-48, std::numeric_limits<double>::min());
  const auto fill = [&] {
    for (std::size_t k = 0; k < slots_.size(); ++k) {
      reach(k, level, search.guess_units(k, level));
    }
  };
  for (fill(); level_feasible() && level >= 0.0; fill()) {
    level -= step;
    step *= 16.0;
  }
}

void Chain::advance_to_optimum() {
  using Event = std::pair<double, std::size_t>;
  std::vector<Event> events;
  events.reserve(slots_.size());
  for (std::size_t k = 0; k < slots_.size(); ++k) {
    events.emplace_back(next_seconds(k), k);
  }
  std::ranges::make_heap(events, std::greater{});
  while (!level_feasible()) {
    std::ranges::pop_heap(events, std::greater{});
    auto& [seconds, k] = events.back();
    ISO_CHECK(seconds < kInfinity, "the allocator ran out of room in a feasible problem");
    reach(k, seconds, static_cast<double>(reach_[k].units + 1));
    seconds = next_seconds(k);
    std::ranges::push_heap(events, std::greater{});
  }
}

}  // namespace isochron::detail
