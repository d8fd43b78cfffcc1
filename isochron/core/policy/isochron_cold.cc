// The part of the policy that knows of cold steps: what a split costs whose sizes workers have not had yet.
#include <algorithm>
#include <stdexcept>

#include "isochron/core/policy/isochron.h"

namespace isochron {
namespace {

constexpr std::size_t kMostUsedSplits = 8;

}  // namespace

void IsochronPolicy::learn_cold_sizes(
    const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) {
  // Where shares are amounts of work, numbers of samples differ from step to step, whatever is decided.
  if (roster.units_per_sample > 1) {
    return;
  }
  bool any = false;
  for (std::size_t k = 0; k < tracks_.size(); ++k) {
    Track& track = tracks_[k];
    if (readings[k].cold && !track.accelerator && roster.workers[k].kind != "cpu") {
      track.accelerator = true;
      track.evidence.expect_overhead(*grid_);
      track.shape = track.seen || !options_.shape ? track.shape : most_linear(track.evidence.misfit());
    }
    track.cold.observe(readings[k]);
    if (readings[k].cold && !track.seen) {
      const double scale = readings[k].seconds / shape_of(track)(static_cast<double>(readings[k].batch));
      track.cold_scale = track.cold_scale > 0.0 ? std::min(track.cold_scale, scale) : scale;
    }
    any |= track.cold.any();
  }
  if (any && (used_.empty() || !std::ranges::equal(used_.back(), current))) {
    std::erase_if(used_, [current](const auto& split) { return std::ranges::equal(split, current); });
    used_.emplace_back(current.begin(), current.end());
    if (used_.size() > kMostUsedSplits) {
      used_.erase(used_.begin());
    }
  }
}

double IsochronPolicy::cold_seconds(
    const Roster& roster, const Outlook& view, std::span<const std::int64_t> batches) const {
  const double warm = step_seconds(roster, view, batches);
  double longest = warm;
  for (std::size_t k = 0; k < batches.size(); ++k) {
    const double extra = tracks_[k].cold.seconds(batches[k]);
    if (extra > 0.0) {
      longest = std::max(longest, roster.workers[k].offset_seconds + work_seconds(view, k, batches[k]) + extra);
    }
  }
  return longest - warm;
}

IsochronPolicy::Choice IsochronPolicy::best_used_split(
    const Roster& roster, const Outlook& view, std::span<const std::int64_t> current) const {
  Choice best;
  for (const std::vector<std::int64_t>& split : used_) {
    if (std::ranges::equal(split, current)) {
      continue;
    }
    const double seconds = cost(roster, view, split);
    if (best.batches.empty() || seconds < best.seconds) {
      best.batches = split;
      best.seconds = seconds;
    }
  }
  return best;
}

void IsochronPolicy::exchange_used(StateExchange& state) {
  std::vector<std::int64_t> flat;
  for (const std::vector<std::int64_t>& split : used_) {
    flat.insert(flat.end(), split.begin(), split.end());
  }
  state.field("used", flat);
  if (flat.size() % std::max<std::size_t>(ids_.size(), 1) != 0) {
    throw std::invalid_argument(
        "state field used has " + std::to_string(flat.size()) + " entries; permitted: a multiple of " +
        std::to_string(ids_.size()) + ", the workers");
  }
  used_.clear();
  for (auto place = flat.begin(); place != flat.end(); place += std::ssize(ids_)) {
    used_.emplace_back(place, place + std::ssize(ids_));
  }
}

}  // namespace isochron
